"""The way into a running sandbox for a caller: found, counted as work, and honest when it ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

from paddock.domain.errors import InvalidRequest, Unauthenticated, Unavailable
from paddock.domain.records import SandboxRecord
from paddock.domain.team import Principal, Scope
from paddock.services.activity import Activity
from paddock.services.changes import Changes
from paddock.services.guests import Guests, check_runs
from paddock.services.sandboxes import Sandboxes
from paddock.services.transfers import TransferGuest


@dataclass(frozen=True, slots=True)
class Entered:
    """A sandbox that somebody is in, and the guest that does what they ask."""

    sandbox: SandboxRecord
    guest: TransferGuest


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
        self, principal: Principal, name: str, what: str, scope: Scope = Scope.SANDBOXES_WRITE
    ) -> AsyncIterator[Entered]:
        """While this is open, `what` counts as work; an empty `what` is a mere look and does not.

        When the guest does not answer any more because its sandbox has ended, that is the error:
        Conflict with the reason, not a connection that was lost.
        """
        principal.require(scope)
        sandbox = await self._changes.find(principal.team_id, name)
        guest = await self._guests.of(sandbox)
        with self._activity.working(sandbox.id, what) if what else nullcontext():
            try:
                yield Entered(sandbox, guest)
            except Unauthenticated as error:
                # The guest's protocol says so of a user that it does not have.
                raise InvalidRequest(
                    error.message, remediation="name a user that the sandbox has, such as root"
                ) from error
            except Unavailable:
                await self._guests.forget(sandbox.id)
                check_runs(await self._sandboxes.refresh(principal, sandbox))
                raise
