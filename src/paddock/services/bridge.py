"""Between a stream of bytes and a library that reads and writes files: a thread, and few pieces."""

import asyncio
import io
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO, TypeVar

T = TypeVar("T")
_PIECES = 4
_PIECE = 256 << 10


class _Gone(Exception):
    """Nobody is at the other end any more."""


class Pipe:
    """Pieces that pass between the event loop and one thread, only a few at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | BaseException] = asyncio.Queue(_PIECES)
        self._closed = threading.Event()

    def close(self) -> None:
        """Whoever waits in the thread gets to know that it waits in vain."""
        self._closed.set()
        while not self._queue.empty():
            self._queue.get_nowait()
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(_Gone())

    async def put(self, item: bytes | BaseException) -> None:
        await self._queue.put(item)

    async def get(self) -> bytes:
        """The next piece; empty at the end."""
        item = await self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def put_from_thread(self, item: bytes | BaseException) -> None:
        self._wait(asyncio.run_coroutine_threadsafe(self._queue.put(item), self._loop).result)

    def get_from_thread(self) -> bytes:
        return self._wait(asyncio.run_coroutine_threadsafe(self.get(), self._loop).result)

    def _wait(self, result: Callable[[], T]) -> T:
        if self._closed.is_set():
            raise _Gone
        try:
            return result()
        except CancelledError:
            raise _Gone from None


class Source(io.RawIOBase):
    """The pipe's end in the thread, to read from."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._held = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._ended and (size < 0 or len(self._held) < size):
            piece = self._pipe.get_from_thread()
            self._ended = not piece
            self._held += piece
        size = len(self._held) if size < 0 else size
        taken, self._held = self._held[:size], self._held[size:]
        return taken


class Sink(io.RawIOBase):
    """The pipe's end in the thread, to write to; it cannot be rewound."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._held += data
        if len(self._held) >= _PIECE:
            self.flush()
        return len(data)

    def flush(self) -> None:
        if self._held:
            data, self._held = bytes(self._held), bytearray()
            self._pipe.put_from_thread(data)


def in_own_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """A slow sender must not take a thread from those that everything else shares."""
    executor = ThreadPoolExecutor(1, thread_name_prefix="archive")
    try:
        return asyncio.get_running_loop().run_in_executor(executor, work)
    finally:
        executor.shutdown(wait=False)


async def converted(
    source: AsyncIterator[bytes], work: Callable[[BinaryIO, BinaryIO], None]
) -> AsyncGenerator[bytes, None]:
    """What `work`, in a thread, makes of the source: `work(reader, writer)`."""
    inlet, outlet = Pipe(), Pipe()

    def run() -> None:
        sink = Sink(outlet)
        try:
            work(Source(inlet), sink)  # type: ignore[arg-type]
            sink.flush()
            outlet.put_from_thread(b"")
        except _Gone:
            return
        except BaseException as error:  # noqa: BLE001 - it is the reader's, who raises it
            with suppress(_Gone):
                outlet.put_from_thread(error)

    async def feed() -> None:
        try:
            async for piece in source:
                if piece:
                    await inlet.put(piece)
            await inlet.put(b"")
        except Exception as error:  # noqa: BLE001 - it is the thread's, which passes it on
            await inlet.put(error)

    feeding = asyncio.create_task(feed(), name="feed a conversion")
    working = in_own_thread(run)
    try:
        while piece := await outlet.get():
            yield piece
    finally:
        feeding.cancel()
        inlet.close()
        outlet.close()
        with suppress(asyncio.CancelledError):
            await feeding
        await asyncio.shield(working)
