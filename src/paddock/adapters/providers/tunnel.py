"""The way to a sandbox that the host cannot enter: connections carried over one attached program.

Nothing is published and nothing listens on a network there. `relay` is the other end, and says how
the frames work. What comes from there is hostile input: lengths are bounded, numbers are looked up.
"""

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from paddock.adapters.providers import relay
from paddock.adapters.providers.relay import CHUNK, CLOSE, CREDIT, DATA, END, HEADER, OPEN
from paddock.domain.errors import Broken, PaddockError, Unavailable

RELAY_ARGV = ("python3", "-I", "-S", "-c", inspect.getsource(relay))


class Attached(Protocol):
    """The relay in the sandbox: its standard streams, however they are carried."""

    async def read(self) -> bytes:
        """Some of its stdout; empty at the end."""
        ...

    async def write(self, data: bytes) -> None: ...

    def abort(self) -> None:
        """Nothing more is read or written; the relay ends."""
        ...


Start = Callable[[], Awaitable[Attached]]
_Reader = asyncio.StreamReader
_Writer = asyncio.StreamWriter


@dataclass
class _Stream:
    """What has arrived for one connection, and how much may still be sent."""

    arrived: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    """Pieces of data; empty is the end of it, None that the connection broke."""
    credit: int = relay.WINDOW
    owed: int = relay.WINDOW
    """How much the other side may send before it must wait for us."""
    more_credit: asyncio.Event = field(default_factory=asyncio.Event)
    ends: set[int] = field(default_factory=set)
    """Which of END and CLOSE have come."""


class Line:
    """One relay in one sandbox, and all connections through it. Ends when the relay does."""

    def __init__(self, attached: Attached) -> None:
        self._attached = attached
        self._streams: dict[int, _Stream] = {}
        self._numbers = count(1)
        self._reading = asyncio.create_task(self._read())

    @property
    def alive(self) -> bool:
        return not self._reading.done()

    async def aclose(self) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading

    async def carry(self, target: str, reader: _Reader, writer: _Writer) -> None:
        """Be the connection between a local client and `target` until both sides have ended."""
        number, stream = next(self._numbers), _Stream()
        self._streams[number] = stream
        try:
            await self._send(OPEN, number, target.encode())
            async with asyncio.TaskGroup() as both:
                both.create_task(self._upwards(number, stream, reader))
                both.create_task(self._downwards(number, stream, writer))
        except* (OSError, Unavailable):
            writer.transport.abort()
        finally:
            del self._streams[number]
            if self.alive:
                with contextlib.suppress(OSError):
                    await self._send(CLOSE, number)

    async def _upwards(self, number: int, stream: _Stream, reader: _Reader) -> None:
        while True:
            while stream.credit <= 0:
                stream.more_credit.clear()
                await stream.more_credit.wait()
            data = await reader.read(min(CHUNK, stream.credit))
            if not data:
                await self._send(END, number)
                return
            stream.credit -= len(data)
            await self._send(DATA, number, data)

    async def _downwards(self, number: int, stream: _Stream, writer: _Writer) -> None:
        while (data := await stream.arrived.get()) is not None:
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            stream.owed += len(data)
            await self._send(CREDIT, number, relay.NUMBER.pack(len(data)))
        raise Unavailable("the connection inside the sandbox broke")

    async def _send(self, kind: int, number: int, payload: bytes = b"") -> None:
        await self._attached.write(HEADER.pack(kind, number, len(payload)) + payload)

    async def _read(self) -> None:
        buffer = bytearray()
        try:
            while data := await self._attached.read():
                buffer += data
                self._take_frames(buffer)
        except (OSError, PaddockError):
            pass  # each connection is told below; why the line broke is of no use to it
        finally:
            self._attached.abort()
            for stream in self._streams.values():
                stream.arrived.put_nowait(None)
                stream.credit = max(stream.credit, 1)
                stream.more_credit.set()

    def _take_frames(self, buffer: bytearray) -> None:
        while len(buffer) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(buffer)
            if length > CHUNK:
                raise Broken(f"a relay sent a frame of {length} bytes")
            if len(buffer) < HEADER.size + length:
                return
            payload = bytes(buffer[HEADER.size : HEADER.size + length])
            del buffer[: HEADER.size + length]
            if (stream := self._streams.get(number)) is not None:
                _deliver(stream, kind, payload)


def _deliver(stream: _Stream, kind: int, payload: bytes) -> None:
    if kind == DATA and payload:
        stream.owed -= len(payload)
        if stream.owed < 0:
            raise Broken("a relay sent more than it was allowed to")
        stream.arrived.put_nowait(payload)
    elif kind in (END, CLOSE):
        if kind in stream.ends:  # each would be kept, and nobody may read any more
            raise Broken("a relay ended a connection twice")
        stream.ends.add(kind)
        stream.arrived.put_nowait(b"" if kind == END else None)
    elif kind == CREDIT and len(payload) == relay.NUMBER.size:
        stream.credit += relay.NUMBER.unpack(payload)[0]
        stream.more_credit.set()


class Tunnel:
    """Local listeners that lead into one sandbox; the line is made when first needed."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._line: Line | None = None
        self._connecting = asyncio.Lock()
        self._listening = asyncio.Lock()
        self._servers: dict[str, asyncio.Server] = {}
        self._clients: set[asyncio.Task[None]] = set()

    async def listen_unix(self, path: str, target: str) -> None:
        """A socket at `path`, for this user only; once is enough."""
        async with self._listening:  # of two at once, the second would take the first's place
            if target in self._servers:
                return
            server = await asyncio.start_unix_server(self._serving(target), path, backlog=512)
            os.chmod(path, 0o600)  # noqa: PTH101 - where it lies nobody else gets before that
            self._servers[target] = server

    async def listen_tcp(self, target: str) -> int:
        """A port on this host's loopback; the same one for the same target."""
        if target not in self._servers:
            self._servers[target] = await asyncio.start_server(
                self._serving(target), "127.0.0.1", 0
            )
        return int(self._servers[target].sockets[0].getsockname()[1])

    def _serving(self, target: str) -> Callable[[_Reader, _Writer], None]:
        def accept(reader: _Reader, writer: _Writer) -> None:
            task = asyncio.create_task(self._serve(target, reader, writer))
            self._clients.add(task)
            task.add_done_callback(self._clients.discard)

        return accept

    async def _serve(self, target: str, reader: _Reader, writer: _Writer) -> None:
        try:
            await (await self._connected()).carry(target, reader, writer)
        except PaddockError:
            writer.transport.abort()  # the client sees a broken connection, and asks again
        finally:
            writer.close()

    async def _connected(self) -> Line:
        async with self._connecting:
            if self._line is None or not self._line.alive:
                self._line = Line(await self._start())
            return self._line

    @asynccontextmanager
    async def hung_up(self) -> AsyncIterator[None]:
        """The line is closed meanwhile; whoever wants one waits."""
        async with self._connecting:
            if self._line is not None:
                await self._line.aclose()
                self._line = None
            yield

    async def aclose(self) -> None:
        for server in self._servers.values():
            server.close()
        clients = tuple(self._clients)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        if self._line is not None:
            await self._line.aclose()
