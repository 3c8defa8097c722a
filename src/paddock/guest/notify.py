"""Waiting for something to have changed, for any number of waiters."""

from __future__ import annotations

import asyncio


class Change:
    """Each wait() returns after the next tell()."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _wake(future)

    async def wait(self, seconds: float | None = None) -> None:
        """For the next one, or so long."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, future)
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
            if timer is not None:
                timer.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
