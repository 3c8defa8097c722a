"""A command's output, followed across broken connections: no byte is lost, none comes twice."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import aiohttp
import msgspec

from paddock.domain.errors import Unavailable
from paddock.interfaces.client import failures
from paddock.interfaces.client.results import Exit, Output, data_of, read
from paddock.interfaces.client.server import Call, Pauses, Server

_SILENCE_S = 45.0
"""Streams give a sign of life every 15 seconds; a connection without one is dead."""
Message = Mapping[str, Any]


async def messages(
    server: Server, call: Call, look: Callable[[Mapping[str, str]], None] | None = None
) -> AsyncGenerator[Message, None]:
    """The messages of an NDJSON stream, whose headers are looked at as soon as it is open.
    Unavailable when it breaks; an error in it is raised."""
    async with server.open(call) as response:
        if look is not None:
            look(response.headers)
        try:
            async for line in _lines(response.content):
                yield _parsed(line)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise failures.interrupted(server.url, call.path, error) from error


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines of any length; empty ones are signs of life."""
    pending = b""
    async for piece in content.iter_any():
        *lines, pending = (pending + piece).split(b"\n")
        for line in filter(None, lines):
            yield line


def _parsed(line: bytes) -> Message:
    message: Message = msgspec.json.decode(line)
    if message.get("type") == "error":
        raise failures.from_detail(message)
    return message


def streaming(method: str, path: str, **more: Any) -> Call:
    """A request for an NDJSON stream."""
    query = {"format": "ndjson", **more.pop("query", {})}
    return Call(method, path, query=query, answers_within_s=_SILENCE_S, **more)


class Tail:
    """The output of one command from where we are in each of its streams."""

    def __init__(self, server: Server, path: str, offsets: Mapping[str, int]) -> None:
        self._server = server
        self._path = path
        self._offsets = dict(offsets)
        self.exit: Exit | None = None

    @property
    def cursor(self) -> str:
        return ",".join(f"{stream}:{place}" for stream, place in sorted(self._offsets.items()))

    async def pieces(
        self, first: AsyncGenerator[Message, None] | None = None, *, follow: bool = True
    ) -> AsyncIterator[Output]:
        """What is new, until the command has ended. `first` is a stream that is open already."""
        pauses = Pauses()
        while self.exit is None:
            source, first = first or self._messages(follow=follow), None
            failure = self._unfinished()
            try:
                async for piece in self._taken(source, pauses):
                    yield piece
            except Unavailable as error:
                failure = error
            else:
                if not follow:
                    return
            if self.exit is None:
                await pauses.wait(failure, self._server.patience_s(failure))

    async def _taken(
        self, source: AsyncGenerator[Message, None], pauses: Pauses
    ) -> AsyncIterator[Output]:
        async with aclosing(source):
            async for message in source:
                pauses.begin()
                if piece := self._take(message):
                    yield piece

    def _messages(self, *, follow: bool) -> AsyncGenerator[Message, None]:
        query = {"cursor": self.cursor, "follow": follow}
        return messages(self._server, streaming("GET", f"{self._path}/output", query=query))

    def _take(self, message: Message) -> Output | None:
        if message["type"] == "exit":
            self.exit = read(Exit, message)
        if message["type"] != "output":
            return None
        piece = Output(
            message["stream"],
            message["offset"],
            data_of(message),
            message.get("lost_bytes", 0),
        )
        known = self._offsets.get(piece.stream, 0)
        if piece.offset < known:
            piece = Output(piece.stream, known, piece.data[known - piece.offset :])
        self._offsets[piece.stream] = piece.end
        return piece if piece.data or piece.lost_bytes else None

    def _unfinished(self) -> Unavailable:
        return Unavailable(
            f"the stream of {self._path.rpartition('/')[2]} ended before the command did",
            remediation="the command goes on; connect to it by its id",
        )
