"""Short calls over a guest's own socket: a tenth of the work of a client made for the whole web."""

import asyncio
from collections.abc import Mapping
from typing import cast

import httptools

from paddock.domain.errors import Broken, LimitExceeded, TimedOut, Unavailable

_CONNECT_TIMEOUT = 5.0
_MOST_HEAD = 64 << 10
_MOST_IDLE = 16
IDLE_S = 300.0
"""Well before the guest closes what nobody uses: a call on a connection that it is just closing
would be lost, and nobody could say whether it was carried out."""


class Wire:
    """Kept-alive connections to one socket, each with one call at a time.

    A call that is cancelled takes its connection along, which is how the guest learns of it.
    """

    def __init__(self, place: str, *, idle_s: float = IDLE_S) -> None:
        self._place = place
        self._idle_s = idle_s
        self._idle: list[_Line] = []
        self._busy: set[_Line] = set()
        self._closed = False

    def close(self) -> None:
        """Whoever still waits for an answer is told that there will be none."""
        self._closed = True
        for line in [*self._idle, *self._busy]:
            line.hang_up("the session with the guest has ended")
        self._idle.clear()

    async def post(
        self, path: str, headers: Mapping[str, str], body: bytes, *, timeout: float, limit: int
    ) -> tuple[int, bytes]:
        """The status and the whole body; an answer larger than the limit raises."""
        try:
            async with asyncio.timeout(timeout):
                line = await self._line(path)
                self._busy.add(line)
                try:
                    return await line.ask(path, _head(path, headers, len(body)) + body, limit)
                finally:
                    self._busy.discard(line)
                    self._put_back(line)
        except TimeoutError as error:
            raise TimedOut(f"{path}: the guest did not answer within {timeout} s") from error

    async def _line(self, path: str) -> "_Line":
        if self._closed:
            raise Unavailable(f"{path}: the session with the guest has ended")
        self._drop_old()
        while self._idle:
            line = self._idle.pop()
            if line.usable:
                return line
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                connecting = asyncio.get_running_loop().create_unix_connection(_Line, self._place)
                _, line = await connecting
        except TimeoutError:
            raise Unavailable(f"{path}: the guest does not take connections") from None
        except OSError as error:
            raise Unavailable(f"{path}: the guest cannot be reached: {error}") from error
        return line

    def _put_back(self, line: "_Line") -> None:
        self._drop_old()
        if line.usable and not self._closed and len(self._idle) < _MOST_IDLE:
            line.idle_since = asyncio.get_running_loop().time()
            self._idle.append(line)
        else:
            line.hang_up("")

    def _drop_old(self) -> None:
        """The last one put back is the first one taken, so the oldest come first."""
        oldest = asyncio.get_running_loop().time() - self._idle_s
        while self._idle and self._idle[0].idle_since < oldest:
            self._idle.pop(0).hang_up("")


def _head(path: str, headers: Mapping[str, str], length: int) -> bytes:
    fields = {"host": "guest", **headers, "content-length": str(length)}
    lines = [f"POST /{path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


class _Line(asyncio.Protocol):
    """One connection. What comes in is hostile: everything it may send is bounded."""

    def __init__(self) -> None:
        self.usable = False
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._path = ""
        self._limit = 0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._taken = 0
        self._pieces: list[bytes] = []
        self._in_body = False

    async def ask(self, path: str, request: bytes, limit: int) -> tuple[int, bytes]:
        assert self._transport is not None
        self.usable = False
        self._path, self._limit = path, limit
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def hang_up(self, why: str) -> None:
        self.usable = False
        if why:
            self._fail(Unavailable(f"{self._path}: {why}"))
        if self._transport is not None:
            self._transport.abort()

    # What the loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.hang_up("")  # nobody asked
            return
        self._taken += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(Broken(f"{self._path}: the guest does not speak HTTP: {error}"))
            self.hang_up("")
            return
        if self._taken > _MOST_HEAD + (self._limit if self._in_body else 0):
            self._too_large()

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        self._transport = None
        self._fail(Unavailable(f"{self._path}: the guest broke off its answer"))

    # What the parser tells.

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.done():
            self.usable = False  # a second answer to one question: nothing here is to be trusted

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        answer, status = self._answer, self._parser.get_status_code()
        if answer is None or answer.done():
            return
        if status < 200:
            self._pieces.clear()  # a word in between; the answer may be in the same piece
            self._in_body = False
            return
        content, lasts = b"".join(self._pieces), self._parser.should_keep_alive()
        self._begin()
        self.usable = lasts
        if len(content) > self._limit:
            self._too_large()
        else:
            answer.set_result((status, content))

    def _too_large(self) -> None:
        self._fail(
            LimitExceeded(f"{self._path}: the guest's answer is larger than {self._limit} bytes")
        )
        self.hang_up("")

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
