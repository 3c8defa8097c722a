"""Whoever moves a task hears at once what somebody wants of it, in whichever process that was."""

import asyncio
import logging

from paddock.domain.errors import PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.message import MessageState
from paddock.services.events import EventFeed, Interest
from paddock.services.task_workers import TaskWorkers
from paddock.services.wakes import Wakes

_log = logging.getLogger(__name__)
_PAUSE_S = 1.0
_BEGINS = frozenset({EventKind.TASK_PENDING})
_ENDS = frozenset({EventKind.TASK_COMPLETED, EventKind.TASK_FAILED, EventKind.TASK_CANCELLED})
_WANTED = frozenset(
    {
        EventKind.TASK_MESSAGE,
        EventKind.TASK_CANCELLING,
        EventKind.TASK_PAUSING,
        EventKind.TASK_RESUMING,
    }
)
_ANSWERS = frozenset({EventKind.APPROVAL_ANSWERED, EventKind.APPROVAL_EXPIRED})


class TaskWaking:
    """From the log of events to those that wait for what is in it."""

    def __init__(self, feed: EventFeed, workers: TaskWorkers, wakes: Wakes) -> None:
        self._feed = feed
        self._workers = workers
        self._wakes = wakes

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._follow()
            except PaddockError as error:
                _log.warning("news of tasks not followed", extra={"error": error.message})
            except Exception:  # noqa: BLE001 - whatever it was, it is followed again
                _log.exception("news of tasks not followed")
            await asyncio.sleep(_PAUSE_S)

    async def _follow(self) -> None:
        interest = Interest(kinds=_BEGINS | _ENDS | _WANTED | _ANSWERS)
        after = await self._feed.last_seq()
        self._wakes.wake_all()  # what was told before is looked at now
        self._workers.kick()
        async for event in self._feed.follow(interest, after):
            self._hear(event)

    def _hear(self, event: Event) -> None:
        if event.kind in _BEGINS or event.kind in _ENDS:
            self._workers.kick()  # there is one more, or room for one more
        elif event.kind in _ANSWERS:
            self._wakes.wake(str(event.data.get("task", "")))
        elif event.data.get("state", MessageState.QUEUED) == MessageState.QUEUED:
            if event.kind is EventKind.TASK_RESUMING:
                self._workers.kick()  # it may not have begun
            self._wakes.wake(event.subject)
