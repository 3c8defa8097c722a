"""One builder at a time for a thing, over all processes of the host."""

import asyncio
import fcntl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

_LOOK_EVERY_S = 0.1


@asynccontextmanager
async def turn(lock: Path, while_waiting: Callable[[], None]) -> AsyncIterator[None]:
    """Hold the lock; a holder that dies lets go of it. Tasks of one process wait as well."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        while not _try(file.fileno()):
            while_waiting()
            await asyncio.sleep(_LOOK_EVERY_S)
        yield


def _try(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
