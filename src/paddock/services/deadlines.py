"""Ends sandboxes at their deadline without waiting for the reaper."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress

from paddock.domain.errors import NotFound, PaddockError
from paddock.domain.event import Event
from paddock.domain.lifetime import Due, deadline, due
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, SandboxFilter, Store
from paddock.services.changes import Changes

_log = logging.getLogger(__name__)
_ITS_OWN = "sandbox."
_LONGEST_S = 60.0
"""The wall clock may be set while we wait."""
_AT_ONCE = 4
End = Callable[[SandboxRecord, Due, asyncio.Semaphore], Coroutine[object, object, None]]


class Deadlines:
    """Knows the deadlines of this process's sandboxes from their events.

    A deadline that is missed, because `end` failed or another server died, is left to the reaper,
    which looks at all sandboxes.
    """

    def __init__(self, store: Store, clock: Clock, changes: Changes, end: End) -> None:
        self._clock = clock
        self._changes = changes
        self._end = end
        self._at: dict[str, float] = {}
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        store.on_events(self._hear)

    async def run(self, living: SandboxFilter) -> None:
        """Until cancelled. `living` are the sandboxes that can have a deadline."""
        limit = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            with suppress(PaddockError):  # the reaper finds them
                async for sandbox in self._changes.each(living):
                    self._note(sandbox)
            while True:
                await self._refresh()
                for sandbox, what in await self._due():
                    group.create_task(self._end(sandbox, what, limit))
                await self._wait()

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind.startswith(_ITS_OWN):
                self._changed.add(event.subject)
                self._wake.set()

    async def _refresh(self) -> None:
        while self._changed:
            sandbox_id = self._changed.pop()
            self._at.pop(sandbox_id, None)
            if (sandbox := await self._find(sandbox_id)) is not None:
                self._note(sandbox)

    async def _due(self) -> list[tuple[SandboxRecord, Due]]:
        now = self._clock.wall()
        found = []
        for sandbox_id in [each for each, at in self._at.items() if at <= now]:
            del self._at[sandbox_id]
            sandbox = await self._find(sandbox_id)
            if sandbox is None:
                continue
            what = due(sandbox.state, sandbox.lifetime, sandbox.clock, now)
            if what is not None and what.reason is Reason.DEADLINE:
                found.append((sandbox, what))
        return found

    async def _wait(self) -> None:
        left_s = min(self._at.values(), default=_LONGEST_S + self._clock.wall())
        left_s = min(max(0.0, left_s - self._clock.wall()), _LONGEST_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), left_s)
        self._wake.clear()

    async def _find(self, sandbox_id: str) -> SandboxRecord | None:
        try:
            return await self._changes.find(ANY_TEAM, sandbox_id)
        except NotFound:
            return None
        except PaddockError as error:
            _log.warning("deadline not read", extra={"id": sandbox_id, "error": error.message})
            return None

    def _note(self, sandbox: SandboxRecord) -> None:
        at = deadline(sandbox.state, sandbox.lifetime, sandbox.clock)
        if at is not None:
            self._at[sandbox.id] = at
