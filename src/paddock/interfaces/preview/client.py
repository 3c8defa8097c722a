"""The side of the visitor: one connection, its requests one after the other."""

import asyncio
from collections.abc import Mapping
from typing import cast

from paddock.interfaces.preview.contract import Reply, RequestHead
from paddock.interfaces.preview.exchange import Exchange
from paddock.interfaces.preview.forwarding import Origin, counted_as
from paddock.interfaces.preview.hub import NEVER, Hub
from paddock.interfaces.preview.intake import Due, Intake
from paddock.interfaces.preview.pages import Trouble
from paddock.interfaces.preview.refusal import Refusal
from paddock.interfaces.preview.replies import render
from paddock.interfaces.preview.request import Request, read_request
from paddock.interfaces.preview.sockets import is_reset

_LINGER_S = 2.0
_INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"
_LOOK_S, _LOOKS = 0.1, 20
"""How often it is looked whether a probe was answered with a reset: the way there takes time."""
_HEAD, _BODY, _NEXT, _NOTHING = Due


class ClientConnection(asyncio.Protocol):
    """Reads requests, starts an Exchange for each, never two at a time, and writes the answers."""

    transport: asyncio.Transport

    def __init__(self, hub: Hub) -> None:
        self.peer = ""
        self.counted_as = ""
        self.deadline = NEVER
        self.intake = Intake(hub.config)
        self.has_ended = False
        """The client has closed its side."""
        self.is_answering = False
        self.is_full = False
        """The client does not take more for now."""
        self._hub = hub
        self._config = hub.config
        self._exchange: Exchange | None = None
        self._keep_alive = True
        self._is_old = False
        self._is_trusted = False
        self._scheme = ""
        self._origin: tuple[str, Origin] | None = None
        self._has_left = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = self.intake.transport = cast(asyncio.Transport, transport)
        self.peer = _address(transport.get_extra_info("peername"))
        self.counted_as = counted_as(self.peer)
        self._is_trusted = self._hub.forwarding.trusts(self.peer)
        self._scheme = "https" if transport.get_extra_info("sslcontext") else ""
        self._hub.clients.add(self)
        self._wait(self._config.head_timeout_s)
        if too_many := self._hub.admit(self.peer):
            self._turn_away(too_many)

    def connection_lost(self, _error: Exception | None) -> None:
        self._hub.clients.discard(self)
        self._leave()
        self.intake.due = _NOTHING
        self._drop_exchange()

    def data_received(self, data: bytes) -> None:
        due = self.intake.due
        if due is _HEAD:
            self._read_head(data)
        elif due is _BODY and not self.intake.held:
            self._feed(data)
        elif due is not _NOTHING:
            self.intake.hold(data)

    def eof_received(self) -> bool:
        """Keep the way back open while an answer is due; a body that ends early is no request."""
        self.has_ended = True
        if self.intake.due is not _NEXT or self._exchange is None:
            return False
        if not self.transport.can_write_eof():
            return False  # TLS has no half that could stay open
        self._keep_alive = False
        self.deadline = min(self.deadline, self._hub.loop.time() + self._config.half_close_s)
        self._probe()
        return True

    def _probe(self) -> None:
        """Has the client only said all it has to say, or is it gone? One that is gone answers
        whatever it is sent with a reset, and one that is there finds that it means nothing: an
        interim answer, or a leading zero of the next chunk's size."""
        exchange = self._exchange
        if exchange is None or self._is_old or self.is_full:
            return
        harmless = exchange.filler() if self.is_answering else _INTERIM
        if harmless:
            self.transport.write(harmless)
            self._hub.loop.call_later(_LOOK_S, self._look, _LOOKS)

    def _look(self, left: int) -> None:
        if self.transport.is_closing():
            return
        if is_reset(self.transport.get_extra_info("socket")):
            self.transport.abort()
        elif left:
            self._hub.loop.call_later(_LOOK_S, self._look, left - 1)

    def pause_writing(self) -> None:
        self.is_full = True
        self._wait(self._config.send_timeout_s)
        if self._exchange is not None and self._exchange.upstream is not None:
            self._exchange.upstream.hold(held=True)

    def resume_writing(self) -> None:
        self.is_full = False
        if self._exchange is None:
            if self.intake.due is _HEAD:
                self._wait(self._config.idle_timeout_s)
                self._go_on()
            return
        if self.is_answering:
            self.deadline = NEVER
            if self.has_ended:
                self._wait(self._config.half_close_s)
        if self._exchange.upstream is not None:
            self._exchange.upstream.hold(held=False)

    def flow(self) -> None:
        """The upstream is there: send it what has come of the body, and wait for its answer."""
        if self.intake.due is not _BODY:
            self._await_answer()
            return
        self._wait(self._config.body_timeout_s)
        if held := self.intake.take_held():
            self._feed(held)

    def start_answer(self, *, closes: bool) -> bytes:
        """The header lines about the connection; `closes` if its end is the answer's end."""
        self.is_answering = True
        if self.has_ended:
            self._wait(self._config.half_close_s)
        else:
            self.deadline = NEVER
        exchange = self._exchange
        if (
            closes
            or self.intake.due is not _NEXT
            or self._hub.stopping
            # Early data of a protocol that was refused must not be taken for a request.
            or (self.intake.held and exchange is not None and exchange.request.upgrade)
        ):
            self._keep_alive = False
        if not self._keep_alive:
            return b"Connection: close\r\n"
        return b"Connection: keep-alive\r\n" if self._is_old else b""

    def write(self, data: bytes) -> None:
        """Bytes of an answer."""
        if self.has_ended:
            self._wait(self._config.half_close_s)
        self.transport.write(data)

    def finished(self) -> None:
        """The answer is written: on to the next request, or the end."""
        self._exchange = None
        self.is_answering = False
        if not self._keep_alive:
            self._close()
            return
        self._wait(self._config.idle_timeout_s)
        self.intake.start_over()
        if self.intake.held:
            # Not called from here: a thousand pipelined requests would be as many frames deep.
            self._hub.loop.call_soon(self._go_on)
        else:
            self._hub.rest(self)

    def expire(self, _now: float) -> None:
        self.deadline = NEVER
        due = self.intake.due
        if self.is_answering or self.is_full or self.has_ended or due is _NOTHING:
            self.transport.abort()
        elif due is _HEAD and not self.intake.has_begun_head:
            self._close()
        elif due is _HEAD or (due is _BODY and not self.intake.is_blocked):
            self._refuse(Refusal(408, "request_timeout", "the request did not arrive in time"))
        elif self._exchange is not None:
            self._exchange.time_out()

    def end(self, *, gently: bool) -> None:
        if not gently:
            self.transport.abort()
        elif self.intake.is_empty:
            self._leave()  # TLS waits for the other side to close as well
            self._close()

    def _leave(self) -> None:
        """Remove the connection from the limits."""
        self._hub.rouse(self)
        if not self._has_left:
            self._has_left = True
            self._hub.leave(self.peer)

    def _read_head(self, data: bytes) -> None:
        self._hub.rouse(self)
        intake = self.intake
        is_new = not intake.has_begun_head
        try:
            raw = intake.head(data)
            request = None if raw is None else self._read_request(raw)
        except Refusal as refusal:
            self._refuse(refusal)
            return
        if request is not None:
            self._begin(request)
        elif is_new and intake.has_begun_head:
            self._wait(self._config.head_timeout_s)

    def _read_request(self, raw: bytes) -> Request:
        return read_request(raw, self._config, self._find_origin)

    def _begin(self, request: Request) -> None:
        request.head.peer = self.peer
        self._hub.counts.requests += 1
        self._keep_alive = request.keep_alive
        self._is_old = request.is_old
        self.deadline = NEVER
        self._exchange = exchange = Exchange(self._hub, self, request)
        self.intake.expect(request.body())
        exchange.begin()

    def _feed(self, data: bytes) -> None:
        """Pass on what belongs to the body, once there is somewhere to pass it on to."""
        exchange = self._exchange
        if exchange is None or exchange.upstream is None:
            self.intake.hold(data)
            return
        try:
            passed = self.intake.body(data)
        except Refusal as refusal:
            self._refuse(refusal)
            return
        exchange.upstream.transport.write(passed)
        if self.intake.due is _NEXT:
            self._await_answer()
        elif not self.is_answering:
            gained = self.deadline + len(passed) / self._config.min_body_rate
            self.deadline = min(self._hub.loop.time() + self._config.body_timeout_s, gained)

    def _await_answer(self) -> None:
        if self._exchange is None or self.is_answering or self.has_ended:
            return
        own = self._exchange.where.response_timeout_s
        self._wait(self._config.response_timeout_s if own is None else own)

    def _go_on(self) -> None:
        """With a request that was sent ahead, unless its answer would find no room."""
        if self.intake.due is _HEAD and not self.is_full and self.intake.held:
            self._read_head(self.intake.take_held())

    def _find_origin(self, host: str, noted: Mapping[bytes, bytes]) -> Origin:
        if self._is_trusted:
            return self._hub.forwarding.relayed(self.peer, host, noted)
        if self._origin is None or self._origin[0] != host:
            self._origin = host, self._hub.forwarding.direct(self.peer, host, self._scheme)
        return self._origin[1]

    def _refuse(self, refusal: Refusal) -> None:
        self._hub.counts.malformed += 1
        head = self._exchange.request.head if self._exchange is not None else None
        self._drop_exchange()
        if self.is_answering:
            self.transport.abort()
            return
        trouble = Trouble(refusal.status, refusal.code, refusal.message, refusal.remediation)
        self._say(self._hub.pages.error(head, trouble), head)

    def _turn_away(self, too_many: str) -> None:
        self._hub.counts.turned_away += 1
        if self._hub.is_flooded:
            self.transport.abort()
            return
        trouble = Trouble(
            503,
            "too_many_connections",
            f"there are too many {too_many}",
            "close some, or try again in a moment",
            retryable=True,
            retry_after_s=2,
        )
        self._say(self._hub.pages.error(None, trouble), None)

    def _say(self, reply: Reply, head: RequestHead | None) -> None:
        """A last answer."""
        self.intake.discard()
        head_only = head is not None and head.method == "HEAD"
        self.transport.write(render(reply, b"Connection: close\r\n", head_only=head_only))
        self._close()

    def _drop_exchange(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.cancel()

    def _close(self) -> None:
        """When everything is written. Unread bytes would reset the connection, so they are read."""
        is_unread = self.intake.due in (_BODY, _NOTHING) or bool(self.intake.held)
        self.intake.discard()
        can_linger = self.transport.can_write_eof() and not self.transport.is_closing()
        if is_unread and not self.has_ended and can_linger:
            self._wait(_LINGER_S)
            self.transport.write_eof()
        else:
            self._wait(self._config.send_timeout_s)
            self.transport.close()

    def _wait(self, seconds: float) -> None:
        self.deadline = self._hub.loop.time() + seconds


def _address(peer: object) -> str:
    """Of a socket's peer. Without an IPv6 zone, and IPv4 as such where the socket has both."""
    if not isinstance(peer, tuple):
        return ""
    return str(peer[0]).partition("%")[0].removeprefix("::ffff:")
