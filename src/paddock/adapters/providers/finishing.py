"""Work that is finished also when whoever asked for it has gone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

_T = TypeVar("_T")


def _as_it_goes() -> None:
    pass


async def uncancelled(work: Awaitable[_T], hurry: Callable[[], None] = _as_it_goes) -> _T:
    """Wait for the end of what must not be left half done; a cancellation comes through after it.
    `hurry` is told of one when it comes.

    What a thread or another process does goes on anyway: who stopped waiting would clean up before
    there is anything to clean up.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
            hurry()
    if cancelled and not task.cancelled():
        task.exception()  # looked at, so that nobody is told of it later
        raise asyncio.CancelledError
    return task.result()
