"""The two directions of an exchange, with what keeps either from filling the memory."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Callable

_BUFFER = 256 << 10
_DISCARD_LIMIT = 16 << 20


class Disconnected(Exception):
    """The client went away."""


class Incoming:
    """A request's body on its way from the connection to whoever reads it."""

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._pause = pause
        self._resume = resume
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._wake: asyncio.Future[None] | None = None
        self._discarded = -1
        self.has_ended = False
        self.is_cut_off = False

    def feed(self, data: bytes) -> bool:
        """False when more is sent than is worth throwing away."""
        if self._discarded >= 0:
            self._discarded += len(data)
            return self._discarded <= _DISCARD_LIMIT
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= _BUFFER:
            self._pause()
        self._tell()
        return True

    def end(self) -> None:
        self.has_ended = True
        self._tell()

    def cut_off(self) -> None:
        self.is_cut_off = True
        self._tell()

    def discard(self) -> None:
        """Whatever still comes is taken, so that the connection can be used again."""
        self._discarded = 0
        self._pieces.clear()
        self._resume()

    async def read(self) -> bytes:
        """The next piece; empty at the end."""
        while not self._pieces:
            if self.has_ended:
                return b""
            if self.is_cut_off:
                raise Disconnected
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        data = self._pieces.popleft()
        self._size -= len(data)
        if self._size < _BUFFER:
            self._resume()
        return data

    def _tell(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Congestion:
    """Whether the client takes what is written to it, and waiting until it does."""

    def __init__(self) -> None:
        self.is_on = False
        self._waiting: list[Callable[[], None]] = []

    def begin(self) -> None:
        self.is_on = True

    def end(self) -> None:
        self.is_on = False
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call once, when the client has caught up or has left."""
        self._waiting.append(callback)

    async def wait(self) -> None:
        if self.is_on:
            over = asyncio.get_running_loop().create_future()
            self.when_over(lambda: None if over.done() else over.set_result(None))
            await over
