"""The side of the sandbox: one connection that requests are sent over, one after the other."""

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, cast

from paddock.interfaces.preview.bodies import Body, Chunked, UntilClose
from paddock.interfaces.preview.contract import NO_EDITS
from paddock.interfaces.preview.heads import END, HeadBuffer
from paddock.interfaces.preview.hub import NEVER, Hub
from paddock.interfaces.preview.intake import Due
from paddock.interfaces.preview.refusal import Garbled, Refusal
from paddock.interfaces.preview.response import Response, read_response

if TYPE_CHECKING:
    from paddock.interfaces.preview.exchange import Exchange


_NEXT = Due.NEXT


class UpstreamConnection(asyncio.Protocol):
    """Sends a request's bytes, and passes the answer's on as they come."""

    transport: asyncio.Transport

    def __init__(self, hub: Hub, key: Hashable) -> None:
        self.key = key
        self.idle_until = NEVER
        self.has_answered = False
        """To the request that is under way."""
        self._hub = hub
        self._exchange: Exchange | None = None
        self._head = HeadBuffer()
        self._body: Body | None = None
        self._keep_alive = False
        self._idle_s = hub.config.upstream_idle_s
        self._is_held = False

    @property
    def is_usable(self) -> bool:
        return not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._hub.upstreams.add(self.transport)

    def begin(self, exchange: "Exchange", head: bytes) -> None:
        """Send a request's head; its body follows through `transport`."""
        self._exchange = exchange
        self.has_answered = False
        self.transport.write(head)

    def data_received(self, data: bytes) -> None:
        if self._exchange is None:
            # Nobody asked: whatever this is, it must not become the answer to the next request.
            self.abort()
            return
        self.has_answered = True
        try:
            if self._body is None:
                self._read_head(data)
            else:
                self._pass(data, self._body.take(data))
        except (Garbled, Refusal) as error:
            self._fail(f"the answer is not valid HTTP: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._hub.upstreams.discard(self.transport)
        exchange = self._exchange
        if exchange is None:
            self._hub.pool.discard(self)
        elif isinstance(self._body, UntilClose) and error is None:
            self._finish(is_clean=False)
        else:
            self._fail("the connection was closed before the answer was complete")

    def pause_writing(self) -> None:
        if self._exchange is not None:
            self._exchange.client.intake.block(blocked=True)

    def resume_writing(self) -> None:
        if self._exchange is not None:
            self._exchange.client.intake.block(blocked=False)

    def hold(self, *, held: bool) -> None:
        """The client does not take more for now, or does again."""
        if held == self._is_held or self.transport.is_closing():
            return
        self._is_held = held
        if held:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def filler(self) -> bytes:
        """Between two chunks, a zero that the next one's size begins with."""
        is_between = isinstance(self._body, Chunked) and self._body.is_between
        return b"0" if is_between else b""

    @property
    def is_framed(self) -> bool:
        """Whether a client sees that the answer is not complete when its connection ends."""
        exchange = cast("Exchange", self._exchange)
        return not (isinstance(self._body, UntilClose) or exchange.request.is_old)

    def close(self) -> None:
        self._exchange = None
        self.transport.close()

    def abort(self) -> None:
        self._exchange = None
        self._hub.pool.discard(self)
        self.transport.abort()

    def _read_head(self, data: bytes) -> None:
        end = 0 if self._head.held else data.find(END) + 4
        found = (data[:end], data[end:]) if end > 3 else self._head.add(data)
        while found is not None:
            head, rest = found
            if len(head) > self._hub.config.max_head_bytes:
                raise Garbled("its head is too large")
            response = read_response(head)
            if response.status >= 200:
                self._answer(response, rest)
                return
            if response.status == 101:
                self._switch(response, rest)
                return
            self._pass_interim(response)
            found = self._head.add(rest)
        if len(self._head.held) > self._hub.config.max_head_bytes:
            raise Garbled("its head is too large")

    def _answer(self, response: Response, rest: bytes) -> None:
        exchange = cast("Exchange", self._exchange)
        request = exchange.request
        unframed = request.is_old and response.is_chunked
        body = response.body(request.head.method, keep=unframed)
        # Looked at before the answer begins, because until then it can be another one.
        end = body.take(rest) if body is not None and rest else 0
        until_close = isinstance(body, UntilClose)
        self._keep_alive = response.keep_alive and not until_close
        if response.idle_s is not None:
            # A second less than it says, for the way there.
            self._idle_s = min(self._idle_s, response.idle_s - 1)
        ending = exchange.client.start_answer(closes=until_close or unframed)
        head = response.for_client(exchange.where.response, ending, unframed=unframed)
        if body is None:
            exchange.client.write(head)
            self._finish(is_clean=not rest)
        else:
            self._body = body
            self._pass(rest, end, head)

    def _pass(self, data: bytes, end: int, head: bytes = b"") -> None:
        """Bytes up to `end` to the client, together with the head where that is still to go."""
        exchange, body = cast("Exchange", self._exchange), cast(Body, self._body)
        passed = data if end == len(data) else data[:end]
        if exchange.request.is_old and isinstance(body, Chunked):
            passed = body.payload()
        if head or passed:
            exchange.client.write(head + passed if head else passed)
        if body.done:
            self._finish(is_clean=end == len(data))

    def _pass_interim(self, response: Response) -> None:
        exchange = cast("Exchange", self._exchange)
        if not exchange.request.is_old:
            exchange.client.write(response.for_client(NO_EDITS, b""))

    def _switch(self, response: Response, rest: bytes) -> None:
        exchange = cast("Exchange", self._exchange)
        if not exchange.request.upgrade:
            raise Garbled("it switched protocols, which nobody had asked for")
        named = response.upgrade or exchange.request.upgrade
        ending = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % named
        head = response.for_client(exchange.where.response, ending)
        self._exchange = None
        self._hub.upstreams.discard(self.transport)
        exchange.switch(head + rest)

    def _finish(self, *, is_clean: bool) -> None:
        """The answer is complete; `is_clean` if nothing came after it."""
        exchange = cast("Exchange", self._exchange)
        self._exchange = self._body = None
        has_all = exchange.client.intake.due is _NEXT
        keep = self._keep_alive and is_clean and has_all
        if not (keep and self._go_idle()):
            # Not closed in order: a body that it no longer reads would never be gone.
            self.transport.abort()
        exchange.finish()

    def _go_idle(self) -> bool:
        transport = self.transport
        if self._idle_s <= 0 or self._hub.stopping or transport.is_closing():
            return False
        if transport.get_write_buffer_size():
            return False
        self.hold(held=False)
        self.idle_until = self._hub.loop.time() + self._idle_s
        return self._hub.pool.put(self)

    def _fail(self, why: str) -> None:
        exchange = cast("Exchange", self._exchange)
        if exchange.client.is_answering:
            exchange.break_off()
            return
        self._exchange = self._body = None
        self.transport.abort()
        exchange.upstream_failed(why, has_answered=self.has_answered)
