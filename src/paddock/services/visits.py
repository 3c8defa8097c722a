"""Visits to sandboxes: they end when the sandbox does, or have it resumed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from paddock.domain.errors import PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.ports.store import Store

_log = logging.getLogger(__name__)
_ENDINGS = frozenset(
    {
        EventKind.SANDBOX_PAUSED,
        EventKind.SANDBOX_STOPPED,
        EventKind.SANDBOX_ARCHIVED,
        EventKind.SANDBOX_FAILED,
        EventKind.SANDBOX_DELETING,
        EventKind.SANDBOX_DELETED,
        EventKind.SANDBOX_QUARANTINED,
    }
)
_MOST_ENDINGS = 10_000
Cut = Callable[[], None]


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """A request that waits for a sandbox's response or receives it."""

    sandbox: SandboxRecord
    since: int
    """The `moment()` before the sandbox was found to be running."""
    cut: Cut
    """Called once the sandbox does not run any more: one that is paused would leave whoever waits
    for its answer waiting."""
    may_wake: Callable[[], bool] = lambda: False
    """Asked when the sandbox was paused: whether it is resumed for this visit instead."""


class Visits:
    """Those of this process."""

    def __init__(
        self, store: Store, wake: Callable[[SandboxRecord], Awaitable[SandboxRecord]]
    ) -> None:
        self._wake = wake
        self._visits: dict[str, set[Visit]] = {}
        self._endings = 0
        self._ended: dict[str, tuple[int, str]] = {}
        """The last ending of each sandbox that does not run again, and how many there were."""
        self._waking: dict[str, asyncio.Task[None]] = {}
        store.on_events(self._hear)

    def moment(self) -> int:
        """Now, for a visit that begins later."""
        return self._endings

    @contextmanager
    def visiting(self, visit: Visit) -> Iterator[None]:
        """While this is open, the visit hears of its sandbox's end."""
        sandbox_id = visit.sandbox.id
        self._visits.setdefault(sandbox_id, set()).add(visit)
        at, kind = self._ended.get(sandbox_id, (0, ""))
        if at > visit.since:
            asyncio.get_running_loop().call_soon(self._tell, sandbox_id, kind)
        try:
            yield
        finally:
            visits = self._visits.get(sandbox_id, set())
            visits.discard(visit)
            if not visits:
                self._visits.pop(sandbox_id, None)

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind == EventKind.SANDBOX_RUNNING:
                self._ended.pop(event.subject, None)
            elif event.kind in _ENDINGS:
                self._endings += 1
                if len(self._ended) >= _MOST_ENDINGS:
                    self._ended.clear()
                self._ended[event.subject] = self._endings, event.kind
                self._tell(event.subject, event.kind)

    def _tell(self, sandbox_id: str, kind: str) -> None:
        visits = self._visits.pop(sandbox_id, set())
        is_paused = kind == EventKind.SANDBOX_PAUSED
        held = {visit for visit in visits if is_paused and visit.may_wake()}
        if held:
            self._visits[sandbox_id] = held
            self._wake_for(next(iter(held)).sandbox)
        for visit in visits - held:
            _end(visit.cut)

    def _wake_for(self, sandbox: SandboxRecord) -> None:
        """Resume it behind the pause, once for all visits."""
        if sandbox.id not in self._waking:
            paused = replace(sandbox, state=SandboxState.PAUSED)
            task = asyncio.create_task(self._resume(paused), name=f"resume {sandbox.id}")
            self._waking[sandbox.id] = task
            task.add_done_callback(lambda _: self._waking.pop(sandbox.id, None))

    async def _resume(self, paused: SandboxRecord) -> None:
        try:
            await self._wake(paused)
        except PaddockError as error:
            _log.warning("sandbox not resumed", extra={"id": paused.id, "error": error.message})
            for visit in self._visits.pop(paused.id, set()):
                _end(visit.cut)


def _end(cut: Cut) -> None:
    try:
        cut()
    except (PaddockError, OSError) as error:
        _log.warning("a visit did not end", extra={"error": str(error)})
