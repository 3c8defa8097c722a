"""What the connections of one listener share."""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Protocol

from paddock.interfaces.preview.config import FrontConfig
from paddock.interfaces.preview.contract import Resolve
from paddock.interfaces.preview.forwarding import Forwarding, counted_as
from paddock.interfaces.preview.pages import Pages
from paddock.interfaces.preview.pool import Pool

NEVER = float("inf")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What has happened since the start."""

    connections: int = 0
    turned_away: int = 0
    evicted: int = 0
    """Idle ones that were closed to make room for others."""
    requests: int = 0
    malformed: int = 0
    dialled: int = 0
    reused: int = 0
    retried: int = 0
    upgraded: int = 0
    failed: int = 0
    """Answered by the front itself because the upstream did not."""


class Attended(Protocol):
    """A client's connection, as the hub looks after it."""

    deadline: float

    def expire(self, now: float) -> None:
        """The deadline has passed."""
        ...

    def end(self, *, gently: bool) -> None:
        """Gently: finish what is under way, begin nothing. Otherwise at once."""
        ...


class Evictable(Attended, Protocol):
    """A client connection that can be closed while it is idle."""

    counted_as: str
    """The address whose connection limit it counts against."""


class Hub:
    """Settings, pool, register of connections and running tasks."""

    def __init__(self, resolve: Resolve, config: FrontConfig, pages: Pages) -> None:
        self.loop = asyncio.get_running_loop()
        self.resolve = resolve
        self.config = config
        self.pages = pages
        self.pool = Pool(config)
        self.forwarding = Forwarding(config.trusted_proxies, config.public_url)
        self.counts = Counts()
        self.clients: set[Attended] = set()
        self.splices: set[Attended] = set()
        self.upstreams: set[asyncio.Transport] = set()
        self.stopping = False
        self._open = 0
        self._addresses: Counter[str] = Counter()
        self._idle: dict[str, dict[Evictable, None]] = {}
        """By address: connections between two requests, the longest idle first."""
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self, address: str) -> str:
        """Empty when the connection may stay, else what there are too many of.

        An idle connection makes room first. A client of E2B keeps one for each sandbox's host.
        """
        self._open += 1
        self.counts.connections += 1
        if address and not self.forwarding.trusts(address):
            counted = counted_as(address)
            self._addresses[counted] += 1
            is_over = self._addresses[counted] > self.config.max_connections_per_address
            if is_over and not self._evict(self._idle.get(counted)):
                return "connections from your address"
        if self._open <= self.config.max_connections:
            return ""
        most = max(self._idle.values(), key=len, default=None)
        return "" if self._evict(most) else "connections"

    def rest(self, connection: Evictable) -> None:
        """Mark the connection as idle: it may be closed to make room."""
        self._idle.setdefault(connection.counted_as, {})[connection] = None

    def rouse(self, connection: Evictable) -> None:
        """Mark the connection as busy."""
        idle = self._idle.get(connection.counted_as)
        if idle is not None:
            idle.pop(connection, None)
            if not idle:
                del self._idle[connection.counted_as]

    def _evict(self, idle: dict[Evictable, None] | None) -> bool:
        if not idle:
            return False
        oldest = next(iter(idle))
        self.rouse(oldest)
        self.counts.evicted += 1
        oldest.end(gently=True)
        return True

    @property
    def is_flooded(self) -> bool:
        """So many are turned away that there is no time to tell them why."""
        return self._open > 2 * self.config.max_connections

    def leave(self, address: str) -> None:
        self._open -= 1
        if address and not self.forwarding.trusts(address):
            counted = counted_as(address)
            self._addresses[counted] -= 1
            if not self._addresses[counted]:
                del self._addresses[counted]

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run it; it handles its own failures and ends when the listener does."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def sweep(self) -> None:
        """Look at every deadline. Cheaper than a timer for each of them, and exact enough."""
        now = self.loop.time()
        for connections in (self.clients, self.splices):
            for late in [each for each in connections if each.deadline <= now]:
                late.expire(now)
        self.pool.expire(now)

    async def finish_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("a task of the front failed", exc_info=error)
