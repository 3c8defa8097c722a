"""The way into a running sandbox for a caller: found, counted as work, and honest when it ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

from paddock.domain.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    PaddockError,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from paddock.domain.quarantine import check_open
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal, Scope
from paddock.services.activity import Activity
from paddock.services.changes import Changes
from paddock.services.guests import Guests, check_runs, set_aside
from paddock.services.sandboxes import Sandboxes
from paddock.services.transfers import TransferGuest

_ASLEEP = (SandboxState.STOPPED, SandboxState.PAUSED, SandboxState.ARCHIVED)
_REMEDIES = {
    Forbidden.code: "ask as a user of the sandbox who may, such as root",
    InvalidRequest.code: "look at what is in the sandbox, with `ls -l` or `command -v`, and name "
    "what is there",
}
"""For what a guest refuses: it says what it found, and knows nothing of who asked and how."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A sandbox that somebody is in, and the guest that does what they ask."""

    sandbox: SandboxRecord
    guest: TransferGuest
    woken: bool = False
    """It slept, and was started or resumed for this."""


class Inside:
    """Everything that happens in a sandbox on somebody's behalf passes here."""

    def __init__(
        self, changes: Changes, guests: Guests, activity: Activity, sandboxes: Sandboxes
    ) -> None:
        self._changes = changes
        self._guests = guests
        self._activity = activity
        self._sandboxes = sandboxes

    @asynccontextmanager
    async def enter(
        self,
        principal: Principal,
        name: str,
        what: str,
        scope: Scope = Scope.SANDBOXES_WRITE,
        *,
        wake: bool = False,
    ) -> AsyncIterator[Entered]:
        """While this is open, `what` counts as work; an empty `what` is a mere look and does not.
        One that sleeps is Conflict, unless `wake` starts or resumes it.

        When the guest does not answer any more because its sandbox has ended, that is the error:
        Conflict with the reason, not a connection that was lost.
        """
        principal.require(scope)
        sandbox = await self._changes.find(principal.team_id, name)
        check_open(sandbox.quarantine, sandbox.name, principal)
        woken = wake and sandbox.state in _ASLEEP
        if woken:
            sandbox = await self._wake(principal, sandbox)
        guest = await self._guests.of(sandbox)
        with self._activity.working(sandbox.id, what) if what else nullcontext():
            try:
                yield Entered(sandbox, guest, woken)
            except Unauthenticated as error:
                # The guest's protocol says so of a user that it does not have.
                raise InvalidRequest(
                    error.message, remediation="name a user that the sandbox has, such as root"
                ) from error
            except (Forbidden, InvalidRequest) as error:
                error.remediation = error.remediation or _REMEDIES[error.code]
                raise
            except Unavailable:
                await self._guests.forget(sandbox.id)
                check_runs(await self._sandboxes.refresh(principal, sandbox))
                raise

    @asynccontextmanager
    async def look(
        self, principal: Principal, name: str, what: str, *, wake: bool = False
    ) -> AsyncIterator[Entered]:
        """As enter(), for what is only read: also of a sandbox that sleeps, which goes on sleeping.

        Where its provider cannot show the disk, `wake` starts or resumes it; else it is Conflict.
        """
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.find(principal.team_id, name)
        check_open(sandbox.quarantine, sandbox.name, principal)
        if sandbox.state not in _ASLEEP:
            async with self.enter(principal, sandbox.id, what) as entered:
                yield entered
            return
        try:
            opened = await self._guests.open_disk(sandbox)
        except (Conflict, Unsupported) as error:
            if not wake and not await self._has_woken(principal, sandbox):
                raise _unseen(sandbox, error) from error
        else:
            async with opened as guest:
                yield Entered(sandbox, guest)
            return
        async with self.enter(principal, sandbox.id, what, wake=wake) as entered:
            yield entered

    async def _has_woken(self, principal: Principal, sandbox: SandboxRecord) -> bool:
        """Whether somebody else has started it just now."""
        now = await self._sandboxes.refresh(principal, sandbox)
        return now.state is SandboxState.RUNNING

    async def _wake(self, principal: Principal, sandbox: SandboxRecord) -> SandboxRecord:
        if sandbox.state is SandboxState.PAUSED:
            return await self._sandboxes.resume(principal, sandbox.id)
        return await self._sandboxes.start(principal, sandbox.id)


def _unseen(sandbox: SandboxRecord, error: PaddockError) -> Conflict:
    if sandbox.quarantine is not None:
        return set_aside(sandbox)
    return Conflict(
        f"sandbox {sandbox.name} is {sandbox.state}, and its files cannot be read meanwhile: "
        f"{error.message}",
        remediation="ask with wake=true, which starts it first, or start it yourself",
    )
