"""Work that takes minutes, and whoever follows it: it goes on when nobody does."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass

from paddock.domain.errors import Broken, PaddockError

_log = logging.getLogger(__name__)
_MOST_STEPS = 10_000
_QUIET_S = 5.0


@dataclass(frozen=True, slots=True)
class Step:
    """How far it is."""

    text: str
    fraction: float | None


class Work:
    """What is being done, all that was heard of it, and how it ended."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._task: asyncio.Task[None] | None = None
        self._steps: list[Step] = []
        self._news = asyncio.Event()

    def begin(self, work: Coroutine[None, None, None]) -> None:
        self._task = asyncio.create_task(work, name=self._what)

    def hear(self, step: Step) -> None:
        if len(self._steps) < _MOST_STEPS:
            self._steps.append(step)
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def follow(self) -> AsyncIterator[Step | None]:
        """Every step, and None whenever nothing was heard for a moment; then what it raised."""
        task, told = self._task, 0
        assert task is not None
        while True:
            news, ended = asyncio.ensure_future(self._news.wait()), task.done()
            for step in self._steps[told:]:
                told += 1
                yield step
            if ended:
                news.cancel()
                self._raise_for(task)
                return
            await asyncio.wait({news, task}, timeout=_QUIET_S, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            yield None

    async def ended(self) -> None:
        """Who gives up waiting does not end it."""
        task = self._task
        assert task is not None
        await asyncio.wait({task})
        self._raise_for(task)

    def cancel(self, ended: Callable[["Work"], None]) -> None:
        """End it; `ended` is called once that is done."""
        assert self._task is not None
        self._task.add_done_callback(lambda _: ended(self))
        self._task.cancel()

    async def aclose(self) -> None:
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _raise_for(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            raise Broken(f"{self._what} was ended with the server", remediation="ask again")
        if (error := task.exception()) is None:
            return
        if isinstance(error, PaddockError):
            raise error
        _log.error("work failed", exc_info=error, extra={"what": self._what})
        raise Broken(f"{self._what} failed; the server's log has the details") from error
