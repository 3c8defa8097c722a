"""This process's own stdin, stdout and stderr, used from the event loop without ever blocking it.

Descriptors are left in blocking mode: they are shared with the shell that started us. A thread of
its own waits at each of them, and none of these threads keeps the program from ending.
"""

import asyncio
import os
import queue
import threading
from collections.abc import AsyncIterator
from typing import Protocol

from paddock.interfaces.cli.failures import ReaderLeft

_CHUNK = 64 << 10
_AHEAD = 4


class Reader:
    """Bytes of a descriptor as they come, read at most a few chunks ahead of who takes them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Until the end of the input, or for ever on a terminal that nobody closes."""
        threading.Thread(target=self._read, daemon=True, name="stdin").start()
        while chunk := await self._chunks.get():
            self._room.release()
            yield chunk

    def _read(self) -> None:
        while True:
            self._room.acquire()
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except OSError:  # closed, or a terminal that has hung up: there is no more
                chunk = b""
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:  # the loop has ended and with it the interest
                return
            if not chunk:
                return


class Sink(Protocol):
    """Where output goes; write() returns when there is room for more."""

    async def write(self, data: bytes) -> None: ...


class Collector:
    """Keeps output up to a limit; the rest is let go."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.data = bytearray()
        self.is_full = False

    async def write(self, data: bytes) -> None:
        room = self._limit - len(self.data)
        self.is_full = self.is_full or len(data) > room
        self.data += data[:room]


class Writer:
    """Takes bytes for a descriptor; write() returns when the descriptor has taken them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._orders: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def write(self, data: bytes) -> None:
        """Raises ReaderLeft when nobody reads any more."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="output")
            self._thread.start()
        done = self._loop.create_future()
        self._orders.put((data, done))
        try:
            await done
        except BrokenPipeError as error:
            raise ReaderLeft from error

    def _work(self) -> None:
        while True:
            data, done = self._orders.get()
            failure: OSError | None = None
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError as error:
                failure = error
            try:
                self._loop.call_soon_threadsafe(_settle, done, failure)
            except RuntimeError:
                return


def _settle(done: asyncio.Future[None], failure: OSError | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
