"""From a program without an event loop into one: one thread of this process, for all of them."""

import asyncio
import atexit
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

ERRAND = "paddock errand"
"""The name of a task that nobody waits for and that yet shall be done before the program ends."""
_END_S = 15.0
_ERRANDS_S = 5.0
Work = Callable[[], None]
_caller: ContextVar["queue.SimpleQueue[Work | None]"] = ContextVar("caller")


def portal() -> "Portal":
    """This process's own; a forked child, which has no such thread, gets another."""
    return _of_process(os.getpid())


@cache
def _of_process(_pid: int) -> "Portal":
    return Portal()


class Portal:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, daemon=True, name="paddock")
        self._thread.start()
        atexit.register(self._end, os.getpid())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result. When the caller is interrupted, the work is cancelled and seen to its end."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a callback of AsyncSandbox cannot use Sandbox; use `await`")
        result: T = _Visit(self._loop, work).result()
        return result

    def each(self, source: AsyncIterator[T]) -> Iterator[T]:
        """The items as they come; the source is closed when nobody takes any more."""

        async def step() -> T:
            return await anext(source)

        async def leave() -> None:
            closing = getattr(source, "aclose", None)
            if closing is not None:
                await closing()

        try:
            while True:
                try:
                    item = self.run(step())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self.run(leave())

    def back(self, function: Callable[[str], R] | None) -> Any:
        """The function, called in the thread that waits: it may use everything that it could use
        there, Paddock included."""
        if function is None:
            return None

        async def called(argument: str) -> R:
            return await _in_caller(lambda: function(argument))

        return called

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(_finished())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _end(self, pid: int) -> None:
        if os.getpid() == pid:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_S)


async def _finished() -> None:
    """Errands are done, within limits, and nothing else that is under way is left hanging."""
    if errands := [task for task in asyncio.all_tasks() if task.get_name() == ERRAND]:
        await asyncio.wait(errands, timeout=_ERRANDS_S)
    if left := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_ERRANDS_S)


class _Visit:
    """One call into the loop, and the calls back from it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop
        self._wanted: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._task: asyncio.Task[Any] | None = None
        loop.call_soon_threadsafe(self._begin, work)

    def result(self) -> Any:
        try:
            self._serve()
        except BaseException:
            self._loop.call_soon_threadsafe(self._cancel)
            self._serve()
            raise
        assert self._task is not None
        return self._task.result()

    def _serve(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            wanted()

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        _caller.set(self._wanted)
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(lambda _: self._wanted.put(None))

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


async def _in_caller(function: Callable[[], R]) -> R:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[R] = loop.create_future()

    def settle(result: R | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(error)

    def work() -> None:
        try:
            result, error = function(), None
        except Exception as failure:  # noqa: BLE001 - raised again where the call was made
            result, error = None, failure
        loop.call_soon_threadsafe(settle, result, error)

    _caller.get().put(work)
    return await answer
