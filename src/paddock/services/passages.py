"""The way through to a sandbox's guest, for clients that speak the guest's protocol themselves."""

import logging
import math
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager

from paddock.domain.guest import GuestAddress
from paddock.domain.lifetime import OnTimeout
from paddock.domain.quarantine import closed
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.dialer import Dialer
from paddock.ports.provider import Endpoint, Ref
from paddock.ports.store import SandboxFilter, Store
from paddock.services.activity import Activity
from paddock.services.changes import Changes
from paddock.services.holders import AccessTokens, Holders
from paddock.services.policies import Policies
from paddock.services.previews import Previews
from paddock.services.providers import Providers
from paddock.services.sandboxes import Sandboxes
from paddock.services.stays import Stays
from paddock.services.system import system
from paddock.services.visits import Visits

_log = logging.getLogger(__name__)
_MOST_MACHINES = 1000
_PRESENT = SandboxFilter(states=frozenset({SandboxState.RUNNING, SandboxState.PAUSED}))
_ASLEEP = (SandboxState.STOPPED, SandboxState.PAUSED, SandboxState.ARCHIVED)


class Passages:
    """Who has a sandbox's access token is let through to its guest, as long as it runs."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        changes: Changes,
        sandboxes: Sandboxes,
        providers: Providers,
        policies: Policies,
        previews: Previews,
        activity: Activity,
        dial: Dialer,
        key: bytes,
        stays: Stays,
        anyone: Principal | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._changes = changes
        self._sandboxes = sandboxes
        self._providers = providers
        self._policies = policies
        self._previews = previews
        self._activity = activity
        self._dial = dial
        self.tokens = AccessTokens(key)
        self.holders = Holders(store, changes, tokens=self.tokens, stays=stays, anyone=anyone)
        self._addresses: dict[str, GuestAddress] = {}
        """By machine: a sandbox that was started again is at another place."""
        self.visits = Visits(store, self.wake)

    async def find(self, sandbox_id: str) -> SandboxRecord:
        """Of any team, in any state; NotFound when there never was one."""
        return await self._previews.find(sandbox_id)

    def is_over(self, sandbox: SandboxRecord) -> bool:
        """Its time is up and it is to be deleted, whether that has been done yet or not."""
        return sandbox.lifetime.on_timeout is OnTimeout.KILL and self.remaining_s(sandbox) <= 0

    def remaining_s(self, sandbox: SandboxRecord) -> float:
        """Until its time is up; endless for what has no end."""
        ends = sandbox.clock.expires_at
        return math.inf if ends is None else ends - self._clock.wall()

    async def present(self) -> AsyncIterator[SandboxRecord]:
        """Every team's that run or are paused: for what is recognised by its secret alone."""
        async for sandbox in self._changes.each(_PRESENT):
            yield sandbox

    async def wake(self, sandbox: SandboxRecord) -> SandboxRecord:
        """Resumed or started, if it sleeps."""
        if sandbox.state not in _ASLEEP:
            return sandbox
        principal = system(sandbox.team_id, "passage")
        if sandbox.state is SandboxState.PAUSED:
            return await self._sandboxes.resume(principal, sandbox.id)
        return await self._sandboxes.start(principal, sandbox.id)

    async def address(self, sandbox: SandboxRecord) -> GuestAddress:
        """Where its guest answers."""
        machine = f"{sandbox.ref} {sandbox.started_at}"
        if (known := self._addresses.get(machine)) is not None:
            return known
        if len(self._addresses) >= _MOST_MACHINES:
            self._addresses.clear()
        provider = self._providers.get(sandbox.provider)
        found = await provider.guest(Ref(sandbox.provider, sandbox.ref))
        self._addresses[machine] = found
        return found

    async def to_guest(self, address: GuestAddress) -> socket.socket:
        return await self._dial(Endpoint(0, url=address.url, socket=address.socket))

    async def to_port(self, sandbox: SandboxRecord, port: int) -> socket.socket:
        return await self._previews.connect(sandbox, port)

    def is_limited(self, sandbox: SandboxRecord) -> bool:
        """Whether a policy says which commands may be run in it."""
        return self._policies.limits(sandbox)

    async def check(
        self,
        holder: Principal,
        sandbox: SandboxRecord,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: str,
        user: str,
    ) -> None:
        """Forbidden or ApprovalRequired unless it is open and every policy allows the command."""
        check_open(sandbox)
        who = system(sandbox.team_id, f"passage/{holder.means}")
        await self._policies.check(who, sandbox, argv, env, cwd=cwd, user=user)

    def working(self, sandbox_id: str) -> AbstractContextManager[None]:
        return self._activity.working(sandbox_id, "passage")


def check_open(sandbox: SandboxRecord) -> None:
    """Forbidden while it is set aside, for all: what lets through does not say whom."""
    if sandbox.quarantine is not None:
        raise closed()
