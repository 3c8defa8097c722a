"""Ends sandboxes at their deadline or after their idle timeout."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from paddock.domain.errors import Conflict, PaddockError
from paddock.domain.lifetime import Action, Due, due
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.provider import Ref
from paddock.ports.store import SandboxFilter, Store
from paddock.services.activity import Activity
from paddock.services.changes import Changes
from paddock.services.deadlines import Deadlines
from paddock.services.guests import Guests
from paddock.services.providers import Providers
from paddock.services.sandboxes import Sandboxes
from paddock.services.system import system

_log = logging.getLogger(__name__)
_LIVING = frozenset({SandboxState.RUNNING, SandboxState.PAUSED, SandboxState.STOPPED})
_FRESH_S = 120.0
_AT_ONCE = 4
_AGAIN_S = 3600.0
"""When archiving failed: packing a disk is too much work to be tried at every look."""
CPU_FLOOR = 0.05
"""Of one core, between two looks: less is a program that waits."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    cpu_seconds: float


class Reaper:
    """Looks at every sandbox from time to time."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        providers: Providers,
        *,
        changes: Changes,
        sandboxes: Sandboxes,
        guests: Guests,
        activity: Activity,
        every_s: float = 5.0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers
        self._changes = changes
        self._sandboxes = sandboxes
        self._guests = guests
        self._activity = activity
        self.every_s = every_s
        """May be changed at any time."""
        self._samples: dict[str, _Sample] = {}
        self._archiving: dict[str, asyncio.Task[None]] = {}
        self._one_archive = asyncio.Semaphore(1)
        self._not_before: dict[str, float] = {}
        self._deadlines = Deadlines(store, clock, changes, self._carry_out)

    async def run(self) -> None:
        """Until cancelled. What fails is tried again the next time."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._deadlines.run(SandboxFilter(states=_LIVING)))
                group.create_task(self._look_repeatedly())
        finally:
            tasks = list(self._archiving.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_repeatedly(self) -> None:
        while True:
            try:
                await self.look()
            except PaddockError as error:
                _log.warning("idle sandboxes not looked at", extra={"error": error.message})
            await self._clock.sleep(self.every_s)

    async def look(self) -> None:
        """Write down where work was seen, then end what is due."""
        if active := self._activity.take_unwritten():
            await self._store.write(lambda tx: tx.sandboxes.touch(active))
            self._changes.forget(*active)
        limit = asyncio.Semaphore(_AT_ONCE)
        # Read to the end first: within the group, a store that fails would be a group of errors.
        found = [each async for each in self._due()]
        async with asyncio.TaskGroup() as group:
            for sandbox, what in found:
                if what.action is Action.ARCHIVE:
                    self._archive_later(sandbox, what)
                else:
                    group.create_task(self._carry_out(sandbox, what, limit))

    async def _due(self) -> AsyncIterator[tuple[SandboxRecord, Due]]:
        now = self._clock.wall()
        async for sandbox in self._changes.each(SandboxFilter(states=_LIVING)):
            seen = self._activity.seen(sandbox.id, sandbox.clock.active_at)
            clock = replace(sandbox.clock, active_at=seen)
            if (what := due(sandbox.state, sandbox.lifetime, clock, now)) is not None:
                yield sandbox, what

    def _archive_later(self, sandbox: SandboxRecord, found: Due) -> None:
        """One after the other, beside the looks: it may take minutes, and deadlines do not wait."""
        now = self._clock.wall()
        if sandbox.id in self._archiving or now < self._not_before.get(sandbox.id, 0.0):
            return
        self._not_before[sandbox.id] = now + _AGAIN_S
        work = self._carry_out(sandbox, found, self._one_archive)
        task = asyncio.create_task(work, name=f"archive {sandbox.id}")
        self._archiving[sandbox.id] = task
        task.add_done_callback(lambda _: self._archiving.pop(sandbox.id, None))

    async def _carry_out(
        self, sandbox: SandboxRecord, found: Due, limit: asyncio.Semaphore
    ) -> None:
        async with limit:
            try:
                stops_idle = found == Due(Action.STOP, Reason.IDLE)
                if stops_idle and not await self._is_idle(sandbox):
                    return
                await self._end(sandbox, found)
            except PaddockError as error:
                details = {"id": sandbox.id, "action": found.action, "error": error.message}
                _log.warning("sandbox could not be ended", extra=details)

    async def _end(self, sandbox: SandboxRecord, found: Due) -> None:
        principal = system(sandbox.team_id, "reaper")
        if found.action is Action.DELETE:
            await self._delete(principal, sandbox, found.reason)
        elif found.action is Action.PAUSE:
            await self._sandboxes.pause(principal, sandbox.id, found.reason)
        elif found.action is Action.STOP:
            detail = ""
            if found.reason is Reason.IDLE:
                detail = f"no work was seen for {sandbox.lifetime.idle_timeout_s:g} s"
            seen_at = self._clock.wall()
            still = lambda now: self._has_stayed_idle(now.id, seen_at)  # noqa: E731
            only_if = still if found.reason is Reason.IDLE else None
            await self._sandboxes.stop(principal, sandbox.id, found.reason, detail, only_if=only_if)
        elif self._providers.get(sandbox.provider).capabilities.archive:
            detail = f"stopped for {sandbox.lifetime.archive_after_s:g} s"
            await self._sandboxes.archive(principal, sandbox.id, found.reason, detail)
            self._not_before.pop(sandbox.id, None)

    async def _delete(self, principal: Principal, sandbox: SandboxRecord, reason: Reason) -> None:
        """Work that would be lost is kept: then it ends by a stop, and says why."""
        try:
            await self._sandboxes.delete(principal, sandbox.id, reason=reason)
        except Conflict as error:
            detail = f"not deleted: {error.message}"
            await self._sandboxes.stop(principal, sandbox.id, reason, detail)

    def _has_stayed_idle(self, sandbox_id: str, since: float) -> bool:
        """Whoever waits for a sandbox's lock may find that work has begun meanwhile."""
        return self._activity.seen(sandbox_id, 0.0) <= since

    async def _is_idle(self, sandbox: SandboxRecord) -> bool:
        """Ask the sandbox itself: a command that runs there is work, whoever started it.

        Idle it is only after two looks between which it used almost no CPU.
        """
        usage = await (await self._guests.of(sandbox)).usage()
        now, before = self._clock.wall(), self._samples.pop(sandbox.id, None)
        if usage.running_runs or usage.commands or usage.streams:
            self._activity.touch(sandbox.id)
            return False
        cpu_seconds = await self._cpu_seconds(sandbox)
        if cpu_seconds is None:
            return True
        if before is None or not 0 < now - before.at < _FRESH_S:
            self._samples[sandbox.id] = _Sample(now, cpu_seconds)
            return False
        if (cpu_seconds - before.cpu_seconds) / (now - before.at) > CPU_FLOOR:
            self._activity.touch(sandbox.id)
            return False
        return True

    async def _cpu_seconds(self, sandbox: SandboxRecord) -> float | None:
        """As the provider measures it, from outside; None where it cannot."""
        provider = self._providers.get(sandbox.provider)
        if not provider.capabilities.metrics:
            return None
        return (await provider.usage(Ref(sandbox.provider, sandbox.ref))).cpu_seconds
