"""Background work of the guest, so that none is lost and none outlives it."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

_T = TypeVar("_T")


class Tasks:
    """Holds every running task; a task that fails says so on the guest's standard error."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            warn_of(error)


def warn_of(error: BaseException) -> None:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    warn(f"a task failed\n{text}")


def warn(message: str) -> None:
    """Standard error is the guest's log; where it is nobody's, it goes nowhere."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"paddock guest: {message}\n")
