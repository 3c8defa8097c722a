"""Requests along a model route, read to their end: they are sent once there is money for them."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from paddock.gateway.brokering import Lack
from paddock.gateway.paying import Crowded, Payment, Slow
from paddock.gateway.requests import Malformed
from paddock.gateway.room import MOST_OF_REQUEST, Full, Patience, Share
from paddock.gateway.routing import Routing

if TYPE_CHECKING:
    from paddock.gateway.brokered import Brokered

WAIT_S = 20.0
"""How long a request waits for others to be answered, and for what they leave of the limit."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Paying:
    """Of one connection: one request at a time waits."""

    def __init__(self, connection: "Brokered", routing: Routing) -> None:
        self._connection = connection
        self._routing = routing
        self._gathered: Gathered | None = None
        self._payment: Payment | None = None
        """Of the request that waits."""
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        room = connection.fence.desk.room
        assert room is not None
        self._share = Share(room)
        connection.relay.pending_changed = self.count

    def gather(self) -> "Gathered | None":
        """Of the request whose head was just read."""
        if self._payment is not None:
            self.stop()  # neither is sent, so nothing is kept for either
            raise Malformed("the request before it still waits")
        payment = self._routing.to_gather()
        if payment is None:
            return None
        if payment.head.values(b"expect"):
            self._connection.relay.tell(_CONTINUE)
        if payment.credential.limit is None and self._share.lacks(payment.head.size.bytes):
            payment.pass_on()
            return None
        self._gathered = Gathered(self, payment, self._connection.fence.desk.patience)
        self.count()
        return self._gathered

    def count(self) -> Full | None:
        """What is kept of requests, from their first byte until the other side has the last."""
        read = self._gathered.size if self._gathered is not None else 0
        return self._share.hold(read + self._size + self._connection.relay.outbox.size)

    def deny(self, lack: Lack) -> Exception:
        self._drop()
        self._routing.note_lack(lack)
        return self._connection.lacking(lack)

    def give_up(self, lack: Lack) -> None:
        """Without another byte of it."""
        self._drop()
        self._routing.note_lack(lack)
        self._connection.refuse(lack)

    def _drop(self) -> None:
        if self._gathered is not None:
            self._gathered.drop()
            self._gathered = None
        self.count()

    def pay(self, payment: Payment, body: bytes, head: Callable[[bytes], bytes]) -> bytes:
        """What is sent now: all of it, or nothing if it has to wait."""
        self._gathered = None
        try:
            body = payment.read(body)
            payment.is_sent = payment.reserve()
        except Lack as lack:
            raise self.deny(lack) from lack
        request = head(b"Content-Length: %d\r\n" % len(body)) + body
        if payment.is_sent:
            return request
        self._wait(payment, request)
        return b""

    def _wait(self, payment: Payment, request: bytes) -> None:
        self._payment, self._size = payment, len(request)
        self.count()

        def go_on(lack: Lack | None) -> None:
            self._end_wait()
            if lack is not None:
                self._routing.note_lack(lack)
                self._connection.refuse(lack)
            else:
                payment.is_sent = True
                self._connection.resume(request)

        def give_up() -> None:
            go_on(payment.occupied())

        self._connection.pause()
        self._timer = asyncio.get_running_loop().call_later(WAIT_S, give_up)
        payment.wait(go_on)

    def _end_wait(self) -> None:
        self._payment, self._size = None, 0
        if self._timer is not None:
            self._timer.cancel()

    def stop(self) -> None:
        """The connection has ended, whatever was read of a request."""
        if self._payment is not None:
            self._payment.release()
            self._end_wait()
        self._drop()


class Gathered:
    """One request, as it comes, if it does not take for ever."""

    def __init__(self, paying: Paying, payment: Payment, patience: Patience) -> None:
        self._paying = paying
        self._payment = payment
        self._patience = patience
        self._body = bytearray()
        self._kept_free = 0 if payment.credential.limit is not None else payment.head.size.bytes
        """What goes on without being read where there is no room is not refused in the midst."""
        self._loop = asyncio.get_running_loop()
        self._began = self._heard = self._loop.time()
        self._timer = self._loop.call_at(self._due, self._look)

    @property
    def size(self) -> int:
        """Of the room that there is for it."""
        return max(len(self._body), self._kept_free)

    @property
    def _due(self) -> float:
        return min(self._heard + self._patience.silent_s, self._began + self._patience.whole_s)

    def _look(self) -> None:
        now = self._loop.time()
        if now < self._due:
            self._timer = self._loop.call_at(self._due, self._look)
            return
        within = f"nothing more for {self._patience.silent_s:g} seconds"
        if now >= self._began + self._patience.whole_s:
            within = f"the rest not within {self._patience.whole_s:g} seconds"
        self._paying.give_up(Slow(self._payment.credential, len(self._body), within))

    def take(self, data: bytes) -> None:
        self._body += data
        self._heard = self._loop.time()
        full = self._paying.count()
        if len(self._body) > MOST_OF_REQUEST:
            raise self._paying.deny(self._payment.too_large())
        if full is not None and not self._kept_free:
            raise self._paying.deny(Crowded(self._payment.credential, full))

    def complete(self, head: Callable[[bytes], bytes]) -> bytes:
        body = bytes(self._body)
        self.drop()
        return self._paying.pay(self._payment, body, head)

    def drop(self) -> None:
        """None of it is kept here any longer."""
        self._timer.cancel()
        self._body.clear()
