"""The guest's ends of a program's streams, driven by the event loop."""

from __future__ import annotations

import asyncio
import os
from typing import Callable

CHUNK = 65536
_MOST_READS = 32


class Outlet:
    """What a program writes: read as it comes, unless paused, until the last writer is gone."""

    def __init__(self, fd: int, on_data: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._on_data = on_data
        self._paused = False
        self.ended = False
        self.on_end: Callable[[], None] | None = None
        self.last_data = 0.0
        self._loop.add_reader(fd, self._read)

    def pause(self) -> None:
        if not self._paused and not self.ended:
            self._paused = True
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if self._paused and not self.ended:
            self._paused = False
            self._loop.add_reader(self._fd, self._read)

    def drain(self) -> None:
        """Take what lies in the pipe now, where all that an ended program wrote is.

        Others may go on writing to it, so this stops at the most a pipe can hold.
        """
        for _ in range(_MOST_READS):
            if self.ended or not self._read():
                return

    def discard(self) -> None:
        """Whoever still writes is not held up, but nobody listens any more."""
        self._on_data = _ignore
        self.on_end = None
        self.resume()

    def close(self) -> None:
        if not self.ended:
            self.ended = True
            if not self._paused:
                self._loop.remove_reader(self._fd)
            os.close(self._fd)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # EIO: the last program has left the terminal
            data = b""
        if data:
            self.last_data = self._loop.time()
            self._on_data(data)
            return True
        self.close()
        if self.on_end is not None:
            self.on_end()
        return False


class Inlet:
    """What a program reads: written as fast as it takes it, in order."""

    def __init__(self, fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._pending: list[tuple[memoryview, asyncio.Future[None]]] = []
        self._closing = False

    @property
    def is_open(self) -> bool:
        return self._fd >= 0 and not self._closing

    async def write(self, data: bytes) -> None:
        """Returns when the program's pipe has taken it all; OSError when it has stopped reading."""
        await self.put(data)

    def put(self, data: bytes) -> asyncio.Future[None]:
        """Begins to write; what comes of it is as of `write`. Also what nobody waits for any more
        is written, in its order."""
        if not self.is_open:
            raise BrokenPipeError
        rest, done = memoryview(data), self._loop.create_future()
        if not self._pending:
            rest = self._write_now(rest)
        if not rest:
            done.set_result(None)
            return done
        self._pending.append((rest, done))
        if len(self._pending) == 1:
            self._loop.add_writer(self._fd, self._flush)
        return done

    def close(self) -> None:
        """The program reads end-of-file after what was written before."""
        self._closing = True
        if not self._pending:
            self._close_now()

    def abandon(self) -> None:
        self._fail(BrokenPipeError())

    def _write_now(self, data: memoryview) -> memoryview:
        try:
            return data[os.write(self._fd, data) :]
        except BlockingIOError:
            return data

    def _flush(self) -> None:
        data, done = self._pending[0]
        try:
            rest = self._write_now(data)
        except OSError as error:
            self._fail(error)
            return
        if rest:
            self._pending[0] = (rest, done)
            return
        self._pending.pop(0)
        if not done.done():
            done.set_result(None)
        if not self._pending:
            self._loop.remove_writer(self._fd)
            if self._closing:
                self._close_now()

    def _fail(self, error: OSError) -> None:
        if self._pending:
            self._loop.remove_writer(self._fd)
        for _, done in self._pending:
            if not done.done():
                done.set_exception(error)
        self._pending = []
        self._close_now()

    def _close_now(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _ignore(data: bytes) -> None:
    pass
