"""What goes on beside everything else, for as long as somebody needs it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

from paddock.domain.errors import PaddockError
from paddock.ports.clock import Clock

_log = logging.getLogger(__name__)


@asynccontextmanager
async def alongside(work: Coroutine[None, None, None], name: str) -> AsyncIterator[None]:
    """It runs while this is open, and has ended afterwards."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def every(
    seconds: float, look: Callable[[], Awaitable[None]], *, clock: Clock, failed: str
) -> None:
    """Look again and again. A look that fails is logged as `failed`; the next may not."""
    while True:
        await clock.sleep(seconds)
        try:
            await look()
        except PaddockError as error:
            _log.warning(failed, extra={"error": error.message})
