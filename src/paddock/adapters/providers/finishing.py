"""Work that is finished also when whoever asked for it has gone."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


async def uncancelled(work: Awaitable[_T]) -> _T:
    """Wait for the end of what must not be left half done; a cancellation comes through after it.

    What a thread or another process does goes on anyway: who stopped waiting would clean up before
    there is anything to clean up.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            cancelled = True
    if cancelled:
        task.exception()  # looked at, so that nobody is told of it later
        raise asyncio.CancelledError
    return task.result()
