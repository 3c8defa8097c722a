"""Warm pools: sandboxes that were made before anybody asked, so that a create is a claim."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from paddock.adapters.providers.local.plan import Plan
from paddock.adapters.providers.local.records import SandboxRecord
from paddock.domain.errors import PaddockError

_log = logging.getLogger(__name__)
_AT_ONCE = 4
_QUIET_S = 0.1
_QUIET_WHEN_PLENTY_S = 1.0
_IMPATIENT = 5


@dataclass
class _Shelf:
    size: int = 0
    waiting: deque[SandboxRecord] = field(default_factory=deque)
    being_made: int = 0
    taken_at: float = 0.0
    short_since: float = 0.0

    @property
    def lacks(self) -> bool:
        return len(self.waiting) + self.being_made < self.size

    def note_taken(self, now: float) -> None:
        if not self.lacks:
            self.short_since = now
        self.taken_at = now

    @property
    def due(self) -> float:
        """When the next one is made: once it is quiet, but patience ends where demand is steady."""
        patience = _QUIET_WHEN_PLENTY_S if 2 * len(self.waiting) > self.size else _QUIET_S
        return min(self.taken_at + patience, self.short_since + _IMPATIENT * patience)


@dataclass
class WarmPool:
    """Keeps each shelf at its size. One shelf holds sandboxes of one plan.

    A replacement is begun once nobody has taken anything for a moment: a burst is served first,
    and while more than half of a shelf is left there is no hurry at all.
    """

    make: Callable[[Plan], Awaitable[SandboxRecord]]
    discard: Callable[[SandboxRecord], Coroutine[Any, Any, None]]
    _shelves: dict[Plan, _Shelf] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _refilling: asyncio.Task[None] | None = None
    _closed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, plan: Plan) -> SandboxRecord | None:
        """One that waits, if any; another is begun in its place."""
        shelf = self._shelves.get(plan)
        if shelf is None:
            return None
        if shelf.waiting:
            shelf.note_taken(time.monotonic())
        self._refill()
        while shelf.waiting:
            record = shelf.waiting.popleft()
            if record.machine is not None and record.machine.alive():
                return record
            self._begin(self._throw_away(record))
        return None

    def give_back(self, plan: Plan, record: SandboxRecord) -> None:
        """One that was taken waits again, where there is still room for it: its shelf may have
        been filled or made smaller meanwhile. After the end it goes with the others."""
        shelf = self._shelves.get(plan)
        if self._closed.is_set() or shelf is None or len(shelf.waiting) >= shelf.size:
            self._begin(self._throw_away(record))
        else:
            shelf.waiting.append(record)

    def ready(self, plan: Plan) -> int:
        shelf = self._shelves.get(plan)
        return len(shelf.waiting) if shelf else 0

    def resize(self, plan: Plan, size: int) -> None:
        """From now on; those too many are destroyed, those missing are begun."""
        shelf = self._shelves.setdefault(plan, _Shelf())
        shelf.size = size
        while len(shelf.waiting) > size:
            self._begin(self._throw_away(shelf.waiting.pop()))
        self._refill()

    async def settle(self) -> None:
        """Wait until every shelf is full, or what was begun has failed."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def aclose(self) -> None:
        """Destroy what nobody claimed."""
        self._closed.set()
        await self.settle()
        for shelf in self._shelves.values():
            while shelf.waiting:
                await self._throw_away(shelf.waiting.pop())

    async def _throw_away(self, record: SandboxRecord) -> None:
        try:
            await self.discard(record)
        except PaddockError as error:
            # Its record says that it is going: whoever starts next goes on with it.
            _log.warning("warm sandbox not destroyed ref=%s error=%s", record.ref, error)

    def _refill(self) -> None:
        if not self._closed.is_set() and (self._refilling is None or self._refilling.done()):
            self._refilling = self._begin(self._fill_shelves())

    async def _fill_shelves(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(self._fill())
        except* PaddockError as failures:
            # The next one to ask has it tried again: demand is the back-off.
            _log.warning("warm sandboxes not made error=%s", failures.exceptions[0])

    async def _fill(self) -> None:
        while not self._closed.is_set() and (next_one := self._next()) is not None:
            plan, shelf = next_one
            if (wait := shelf.due - time.monotonic()) > 0:
                await self._idle(min(wait, _QUIET_S))  # what is taken meanwhile makes it shorter
                continue
            shelf.being_made += 1
            try:
                made = await self.make(plan)
            finally:
                shelf.being_made -= 1
            if len(shelf.waiting) < shelf.size:
                shelf.waiting.append(made)
            else:
                self._begin(self._throw_away(made))  # the shelf was made smaller meanwhile

    async def _idle(self, seconds: float) -> None:
        """At most so long: the end does not wait for anybody's patience."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)

    def _next(self) -> tuple[Plan, _Shelf] | None:
        """The shelf whose turn is first, if any lacks something."""
        lacking = [(plan, shelf) for plan, shelf in self._shelves.items() if shelf.lacks]
        return min(lacking, key=lambda each: each[1].due, default=None)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
