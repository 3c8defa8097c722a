"""A client and whom it speaks to: bytes both ways, each as fast as the other side takes them."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from paddock.gateway.encrypting import Encrypted
from paddock.gateway.outbox import PIECE, Outbox

_MOST_PENDING = 1 << 18
_LINGER_S = 2.0
_ALONE_S = 600.0
"""How long the other side is listened to after the client has gone."""
_RESET = b"\1\0\0\0\0\0\0\0"


class Owner(Protocol):
    """Who decides what becomes of the bytes."""

    def arrived(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""

    def take(self, data: bytes) -> None:
        """The client has sent something."""

    def took(self) -> None:
        """Everything that the client has sent so far was handled."""

    def ended(self) -> None:
        """The client will send nothing more, and nobody is there to be told so."""

    def ended_halfway(self) -> None:
        """The same, and who is there cannot be told so."""

    def distrusted(self, why: str) -> None:
        """The client does not take us for whom it wants to speak to."""

    def answered(self, data: bytes) -> None:
        """The other side has, and the client was given it."""

    def finished(self) -> None:
        """The client is gone."""


class Relay:
    """Two transports. The second one comes later, and what is sent to it until then waits."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._client: Any = None
        self._upstream: Any = None
        self.outbox = Outbox()
        self.pending_changed: Callable[[], object] = lambda: None
        self.client_ended = False
        self._upstream_ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self.is_over = False
        self.up = self.down = 0
        self._client_side: asyncio.Protocol | None = None
        self.encrypted: Encrypted | None = None
        self.read_answer: Callable[[bytes], bytes] | None = None
        """What the client gets of what the other side sends; None is all of it."""
        self.end_answer: Callable[[], bytes] | None = None
        """And what it still gets when the other side has ended."""
        self.is_read_on: Callable[[], bool] = lambda: False
        """Whether the other side is listened to although the client has gone."""
        self._is_alone = False
        self.is_client_full = False
        """Whether the client reads nothing for now, so that the other side is not read."""
        self.read_since = 0.0
        """When reading from the other side last changed, in the event loop's time."""

    @property
    def is_joined(self) -> bool:
        return self._upstream is not None

    def client_side(self) -> asyncio.Protocol:
        self._client_side = _Side(
            self,
            made=self._arrived,
            data=self._from_client,
            eof=self._client_eof,
            lost=self._client_lost,
        )
        return self._client_side

    def upstream_side(self) -> asyncio.Protocol:
        return _Side(
            self,
            made=_nothing,
            data=self._from_upstream,
            eof=self._upstream_eof,
            lost=self._upstream_lost,
        )

    def encrypt(self, context: ssl.SSLContext, beginning: bytes) -> None:
        """The client speaks TLS, of which this was the beginning; all else here is plain."""
        self._client = self.encrypted = Encrypted(self._client, context)
        self._decrypt(beginning)

    def join(self, upstream: asyncio.Transport) -> None:
        """The other side is there; it gets what was kept for it."""
        if self.is_over or self._is_closing:
            upstream.abort()
            return
        self._upstream = self.outbox.upstream = upstream
        upstream.set_write_buffer_limits(high=PIECE)
        was_held_up = self.outbox.size > _MOST_PENDING
        self._hand_over()
        if was_held_up and not self._is_held_up:
            self._client.resume_reading()
        if self.client_ended:
            self._end_upstream()

    def send(self, data: bytes) -> None:
        """To the other side."""
        self.up += len(data)
        self.outbox.put(data)
        self._hand_over()
        if self.outbox.size > _MOST_PENDING and not self._client.is_closing():
            self._client.pause_reading()

    def _hand_over(self) -> None:
        self.outbox.hand_over()
        self.pending_changed()

    @property
    def _is_held_up(self) -> bool:
        return self.outbox.is_full or self.outbox.size > _MOST_PENDING

    def _drop_pending(self) -> None:
        """Nobody is there to take it any more."""
        self.outbox.clear()
        self.pending_changed()

    def tell(self, data: bytes) -> None:
        """The client, of our own."""
        if not self._client.is_closing():
            self._client.write(data)

    def tell_and_close(self, last_words: bytes) -> None:
        """What is still sent is read and dropped for a while: a reset would overtake the words."""
        self._is_closing = True
        self._drop_pending()
        if self._upstream is not None:
            self._upstream.abort()
        if self._client.is_closing():
            return
        self._client.write(last_words)
        if self._client.can_write_eof():
            self._client.write_eof()
        self.abort_in(_LINGER_S)

    def finish(self) -> None:
        """Both have said everything."""
        self._client.close()
        if self._upstream is not None:
            self._upstream.close()

    def abort_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def abort(self) -> None:
        """A reset, so that nobody takes it for the end of an answer."""
        self._is_closing = True
        if self._client is not None and not self._client.is_closing():
            found = self._client.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._client.abort()
        if self._upstream is not None:
            self._upstream.abort()

    def full(self, side: asyncio.Protocol, *, full: bool) -> None:
        """A side that takes nothing more for now has the other one not read."""
        is_upstream = side is not self._client_side
        if is_upstream:
            self.outbox.is_full = full
            if not full and not self._is_closing:
                self._go_on()
            full = self._is_held_up
        else:
            self.is_client_full = full
            self.read_since = asyncio.get_running_loop().time()
        source = self._client if is_upstream else self._upstream
        if source is None or source.is_closing():
            return
        if full:
            source.pause_reading()
        else:
            source.resume_reading()

    def _go_on(self) -> None:
        self._hand_over()
        if self.client_ended and self._upstream is not None:
            self._end_upstream()

    def _arrived(self, transport: asyncio.BaseTransport) -> None:
        self._client = transport
        self._owner.arrived(transport)

    def _from_client(self, data: bytes) -> None:
        if self.encrypted is None:
            self._owner.take(data)
        else:
            self._decrypt(data)
        self._owner.took()

    def _decrypt(self, data: bytes) -> None:
        assert self.encrypted is not None
        try:
            plain = self.encrypted.decrypted(data)
        except ssl.SSLError as error:
            self._owner.distrusted(error.reason or str(error))
            self.abort()
            return
        if plain:
            self._owner.take(plain)
        if self.encrypted.ended and not self.client_ended:
            self._client_eof()

    def _client_eof(self) -> None:
        self.client_ended = True
        if self._upstream_ended:
            self.finish()  # a transport whose ends were both said does not close by itself
        elif self._upstream is not None:
            self._end_upstream()
        else:
            self._owner.ended()

    def _end_upstream(self) -> None:
        if self._upstream.is_closing() or self.outbox.size:
            return
        if self._upstream.can_write_eof():
            self._upstream.write_eof()
        else:
            self._owner.ended_halfway()

    def _client_lost(self, _error: Exception | None) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_closing and self.is_read_on() and self._goes_on_alone():
            return
        self._drop_pending()
        if self._upstream is not None:
            self._upstream.close()
        self._owner.finished()

    def _goes_on_alone(self) -> bool:
        if self._upstream is None or self._upstream.is_closing():
            return False
        self._is_alone = self.client_ended = True
        self._upstream.resume_reading()  # it was not read while the client took nothing
        self.abort_in(_ALONE_S)
        return True

    def _from_upstream(self, data: bytes) -> None:
        if self._is_closing:
            return
        self.down += len(data)
        if self.read_answer is not None:
            data = self.read_answer(data)
            if self._is_closing or not data:
                return
        self.tell(data)
        self._owner.answered(data)

    def _upstream_eof(self) -> None:
        self._upstream_ended = True
        if self._client.is_closing():
            return
        self._tell_the_end()
        if self.client_ended:
            self.finish()
        elif self._client.can_write_eof():
            self._client.write_eof()

    def _upstream_lost(self, error: Exception | None) -> None:
        self._drop_pending()
        if self._is_alone:
            self._end_alone(error)
        elif error is not None:
            self.abort()
        elif self._timer is None:
            self._tell_the_end()
            self._client.close()

    def _end_alone(self, error: Exception | None) -> None:
        self._is_alone = False
        if self._timer is not None:
            self._timer.cancel()
        if error is None:
            self._tell_the_end()
        self._owner.finished()

    def _tell_the_end(self) -> None:
        if self.end_answer is not None and not self._is_closing:
            self.tell(self.end_answer())


class _Side(asyncio.Protocol):
    def __init__(
        self,
        relay: Relay,
        *,
        made: Callable[[asyncio.BaseTransport], None],
        data: Callable[[bytes], None],
        eof: Callable[[], None],
        lost: Callable[[Exception | None], None],
    ) -> None:
        self._relay = relay
        self._made, self._eof, self._lost = made, eof, lost
        self.data_received = data  # type: ignore[assignment, method-assign]
        self.source: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.source = transport
        self._made(transport)

    def eof_received(self) -> bool:
        self._eof()
        return bool(self.source.can_write_eof())  # in TLS there is no half

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(error)

    def pause_writing(self) -> None:
        self._relay.full(self, full=True)

    def resume_writing(self) -> None:
        self._relay.full(self, full=False)


def _nothing(_transport: asyncio.BaseTransport) -> None:
    return None
