"""Running the asynchronous part of a command so that a signal ends it and its clean-up is done."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from paddock.interfaces.cli.failures import Interrupted

T = TypeVar("T")
NewLoop = Callable[[], asyncio.AbstractEventLoop]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_async(work: Coroutine[Any, Any, T], loop: NewLoop | None = None) -> T:
    """The result of the work; Interrupted when a signal ended it.

    Each signal cancels the work once, so that whoever cleans up is itself interrupted by the
    second one and can say what remains. An error raised by the clean-up goes before Interrupted.
    """
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(_interruptible(work))


async def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    received: list[int] = []

    def interrupt(number: int) -> None:
        received.append(number)
        task.cancel()

    # Replaces the runner's own handler, whose second signal would leave clean-up where it is.
    for number in _ENDING:
        loop.add_signal_handler(number, interrupt, number)
    try:
        return await task
    except asyncio.CancelledError as error:
        if not received:
            raise
        raise Interrupted(received[0]) from error
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)


def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Like run_async, for what only ends when it is told to: being told is no failure."""
    import uvloop  # what runs for a moment is done before its faster loop is loaded

    with suppress(Interrupted):
        run_async(work, uvloop.new_event_loop)
