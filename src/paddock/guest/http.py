"""HTTP/1.1 over asyncio, with h11 as the parser: one exchange at a time per connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Callable

import h11

from .body import Congestion, Disconnected, Incoming
from .errors import GuestError
from .tasks import warn_of

_HEADER_LIMIT = 64 << 10
_WRITE_BUFFER = 256 << 10
_MOST_CONNECTIONS = 8192


class Exchange:
    """One request and its response."""

    def __init__(self, connection: Connection, request: h11.Request) -> None:
        self._connection = connection
        self.method = request.method.decode("ascii")
        target = request.target.decode("latin-1")
        self.path, _, self.query = target.partition("?")
        self.headers = {
            name.decode("ascii"): value.decode("latin-1") for name, value in request.headers
        }
        self.trusted = connection.trusted
        self.body = Incoming(connection.pause_reading, connection.resume_reading)
        self.responding = False
        self.on_disconnect: Callable[[], object] | None = None

    @property
    def is_connected(self) -> bool:
        return self._connection.is_connected

    async def read(self) -> bytes:
        """The next piece of the request's body; empty at its end."""
        self._connection.ask_for_body()
        return await self.body.read()

    async def read_all(self, limit: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            data = await self.read()
            if not data:
                return b"".join(pieces)
            size += len(data)
            if size > limit:
                raise GuestError(
                    "resource_exhausted", f"the request is larger than the {limit} bytes allowed"
                )
            pieces.append(data)

    def respond(self, status: int, body: bytes = b"", *headers: tuple[str, str]) -> None:
        """A whole response at once."""
        self.responding = True
        fields = [*headers]
        if status != 204:
            fields.append(("content-length", str(len(body))))
        events: list[h11.Event] = [h11.Response(status_code=status, headers=fields)]
        if body and self.method != "HEAD":
            events.append(h11.Data(data=body))
        events.append(h11.EndOfMessage())
        self._connection.send(*events)

    def start_response(self, status: int, *headers: tuple[str, str]) -> None:
        """Without a content-length among the headers the body is sent in chunks."""
        self.responding = True
        self._connection.send(h11.Response(status_code=status, headers=[*headers]))

    def write(self, data: bytes) -> None:
        self._connection.send(h11.Data(data=data))

    def end_response(self) -> None:
        self._connection.send(h11.EndOfMessage())

    @property
    def congestion(self) -> Congestion:
        return self._connection.congestion

    async def drain(self) -> None:
        """Wait until the client has taken most of what was written; Disconnected if it left."""
        await self._connection.congestion.wait()
        if not self.is_connected:
            raise Disconnected

    def abort(self) -> None:
        """Break the connection: the only way to say that a body already begun is not whole."""
        self._connection.abort()

    def disconnected(self) -> None:
        self.body.cut_off()
        if self.on_disconnect is not None:
            self.on_disconnect()


Handler = Callable[[Exchange], Awaitable[None]]


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(
        self,
        handler: Handler,
        start: Callable[[Any], Any],
        open_ones: set[Connection],
        *,
        trusted: bool,
    ) -> None:
        self._handler = handler
        self._start = start
        self._open_ones = open_ones
        self.trusted = trusted
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEADER_LIMIT)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._reading_paused = False
        self.congestion = Congestion()
        self.last_used = 0.0

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    @property
    def is_idle(self) -> bool:
        return self._exchange is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open_ones.add(self)
        transport.set_write_buffer_limits(_WRITE_BUFFER)
        self.last_used = asyncio.get_running_loop().time()
        if len(self._open_ones) > _MOST_CONNECTIONS:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._open_ones.discard(self)
        self.congestion.end()
        if self._exchange is not None:
            self._exchange.disconnected()

    def data_received(self, data: bytes) -> None:
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.congestion.begin()

    def resume_writing(self) -> None:
        self.congestion.end()

    def pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def ask_for_body(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            self.send(h11.InformationalResponse(status_code=100, headers=[]))

    def send(self, *events: Any) -> None:
        if self._transport is None:
            raise Disconnected
        data = b"".join([self._http.send(event) or b"" for event in events])
        if data:
            self._transport.write(data)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def let_go(self) -> None:
        """Break off without telling what was asked for: a command that runs goes on."""
        if self._exchange is not None:
            self._exchange.on_disconnect = None
        self.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _advance(self) -> None:
        try:
            while self._transport is not None and self._take(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def _take(self, event: Any) -> bool:
        """Act on one event of the parser; False when it has no more for now."""
        if event is h11.NEED_DATA:
            return False
        if event is h11.PAUSED:
            self.pause_reading()  # a next request waits until this one is answered
            return False
        if isinstance(event, h11.Request):
            if sum(len(name) + len(value) for name, value in event.headers) > _HEADER_LIMIT:
                raise h11.RemoteProtocolError("the headers are too long", 431)
            self._exchange = Exchange(self, event)
            self._start(self._serve(self._exchange))
        elif isinstance(event, h11.Data) and self._exchange is not None:
            if not self._exchange.body.feed(bytes(event.data)):
                self.abort()
        elif isinstance(event, h11.EndOfMessage) and self._exchange is not None:
            self._exchange.body.end()
            self._finish_cycle()
        elif isinstance(event, h11.ConnectionClosed):
            self.close()
            return False
        return True

    async def _serve(self, exchange: Exchange) -> None:
        try:
            await self._handler(exchange)
        except Disconnected:
            self.abort()
            return
        except Exception as error:  # noqa: BLE001 - a fault of ours must not hang its caller
            warn_of(error)
            self._admit(exchange, error)
        if self._transport is None:
            return
        if self._http.our_state is h11.SEND_BODY:
            self.abort()  # a handler that gave up half way: the client must not take it for whole
            return
        exchange.body.discard()
        self._finish_cycle()

    def _finish_cycle(self) -> None:
        """Make ready for the next request once both sides are done with this one."""
        if self._http.our_state is h11.MUST_CLOSE:
            self.close()
            return
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return
        self._http.start_next_cycle()
        self._exchange = None
        self.last_used = asyncio.get_running_loop().time()
        self.resume_reading()
        asyncio.get_running_loop().call_soon(self._advance)

    def _admit(self, exchange: Exchange, error: Exception) -> None:
        if self._transport is None or exchange.responding:
            self.abort()
            return
        body = b'{"code":"internal","message":"the guest has a fault: %s"}' % _plain(repr(error))
        exchange.respond(500, body, ("content-type", "application/json"))

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE) and self._exchange is None:
            body = b'{"code":"invalid_argument","message":"%s"}' % _plain(str(error))
            fields = [("content-type", "application/json"), ("content-length", str(len(body)))]
            fields.append(("connection", "close"))
            response = h11.Response(status_code=error.error_status_hint, headers=fields)
            self.send(response, h11.Data(data=body), h11.EndOfMessage())
            self.close()
        else:
            self.abort()


def _plain(text: str) -> bytes:
    return bytes(c for c in text.encode("ascii", "replace") if 32 <= c < 127 and c not in b'"\\')
