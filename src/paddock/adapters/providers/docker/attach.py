"""A program run inside a container, with its standard streams carried by the engine."""

import asyncio
import json
import struct
from collections import deque
from collections.abc import Sequence
from urllib.parse import urlsplit

import h11

from paddock.adapters.providers.docker import faults
from paddock.adapters.providers.docker.engine import Engine
from paddock.domain.errors import Broken, TimedOut

_HEADER = struct.Struct(">BxxxI")
"""Before each piece of output: 1 for stdout or 2 for stderr, and how long it is."""
_PIECE_LIMIT = 16 << 20
_CHUNK = 64 << 10
_START_S = 30.0


class Attached:
    """Write to its stdin, read from its stdout; what it says on stderr is kept for a message."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._early: deque[bytes] = deque()
        self._buffer = bytearray()
        self._complaint = b""

    @classmethod
    async def start(cls, engine: Engine, container: str, argv: Sequence[str]) -> "Attached":
        """Run `argv` in the container as its root, under all of its limits."""
        what = f"run a program in container {container[:12]}"
        order = {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": False,
            "User": "0:0",
            "Cmd": list(argv),
        }
        made = await engine.post(f"containers/{container}/exec", what, order)
        try:
            async with asyncio.timeout(_START_S):
                return await cls._upgrade(engine, f"exec/{made['Id']}/start", what)
        except TimeoutError as error:
            raise TimedOut(f"the engine did not {what} within {_START_S:g} s") from error

    @classmethod
    async def _upgrade(cls, engine: Engine, path: str, what: str) -> "Attached":
        """The answer's connection becomes the program's streams, in both directions."""
        reader, writer = await _connect(engine)
        attached = cls(reader, writer)
        try:
            await attached._exchange(engine, path, what)
        except BaseException:
            writer.transport.abort()
            raise
        return attached

    async def _exchange(self, engine: Engine, path: str, what: str) -> None:
        connection = h11.Connection(h11.CLIENT)
        body = json.dumps({"Detach": False, "Tty": False}).encode()
        request = h11.Request(
            method="POST",
            target=engine.path(path),
            headers=[
                ("Host", "engine"),
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                ("Connection", "Upgrade"),
                ("Upgrade", "tcp"),
            ],
        )
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            self._writer.write(connection.send(event) or b"")
        await self._writer.drain()
        answer = await self._next_event(connection, what)
        if not isinstance(answer, h11.Response | h11.InformationalResponse):
            raise Broken(f"the engine did not answer when asked to {what}")
        if answer.status_code >= 300:
            raise faults.of_answer(answer.status_code, await self._rest(connection, what), what)
        # Docker answers 101 and Podman may answer 200; the bytes after the head are the same.
        if answer.status_code == 101:
            self._early.append(connection.trailing_data[0])
        else:
            while isinstance(piece := connection.next_event(), h11.Data):
                self._early.append(bytes(piece.data))

    async def _next_event(self, connection: h11.Connection, what: str) -> object:
        while (event := connection.next_event()) is h11.NEED_DATA:
            data = await self._reader.read(_CHUNK)
            connection.receive_data(data)
            if not data:
                raise Broken(f"the engine broke off when asked to {what}")
        return event

    async def _rest(self, connection: h11.Connection, what: str) -> bytes:
        content = b""
        while isinstance(event := await self._next_event(connection, what), h11.Data):
            content += bytes(event.data)
        return content

    async def read(self) -> bytes:
        """Some of its stdout; empty at the end."""
        while True:
            head = await self._exactly(_HEADER.size)
            if head is None:
                return b""
            stream, length = _HEADER.unpack(head)
            if length > _PIECE_LIMIT:
                raise Broken(f"the engine announced a piece of {length} bytes")
            piece = await self._exactly(length)
            if piece is None:
                return b""
            if stream == 2:
                self._complaint = (self._complaint + piece)[-2000:]
            elif piece:
                return piece

    async def _exactly(self, count: int) -> bytes | None:
        while len(self._buffer) < count:
            data = self._early.popleft() if self._early else await self._reader.read(_CHUNK)
            if not data and not self._early and self._reader.at_eof():
                return None
            self._buffer += data
        piece = bytes(self._buffer[:count])
        del self._buffer[:count]
        return piece

    @property
    def complaint(self) -> str:
        """The last of what it said on stderr."""
        return self._complaint.decode(errors="replace").strip()

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def abort(self) -> None:
        self._writer.transport.abort()


async def _connect(engine: Engine) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = engine.address
    try:
        if address.socket:
            return await asyncio.open_unix_connection(address.socket)
        place = urlsplit(address.url)
        return await asyncio.open_connection(place.hostname, place.port, ssl=address.tls())
    except OSError as error:
        raise faults.unreachable(address, error) from error
