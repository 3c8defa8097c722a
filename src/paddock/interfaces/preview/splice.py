"""After an upgrade: bytes go both ways, unread, until both sides have ended."""

import asyncio
from collections.abc import Callable

from paddock.interfaces.preview.hub import NEVER, Hub


class Splice:
    """Two transports joined. A side that ends is ended on the other; the rest goes on flowing."""

    def __init__(self, hub: Hub, on_end: Callable[[], None]) -> None:
        self.deadline = NEVER
        self._hub = hub
        self._on_end = on_end
        self._sides: tuple[_Side, ...] = ()

    def join(self, client: asyncio.Transport, upstream: asyncio.Transport) -> None:
        """From now on they report to this splice."""
        self._sides = _Side(self, client, upstream), _Side(self, upstream, client)
        self._hub.splices.add(self)
        self._hub.counts.upgraded += 1
        for side in self._sides:
            side.source.set_protocol(side)

    def begin(self, answer: bytes, early: bytes, *, is_full: bool, ended: bool) -> None:
        """Write what is due on both sides, and read them.

        `is_full`: the client does not take more for now. `ended`: it has closed its side already.
        """
        client, upstream = self._sides
        if not ended:
            client.source.resume_reading()
        upstream.source.resume_reading()
        if is_full:
            client.pause_writing()
        client.source.write(answer)
        if early:
            upstream.source.write(early)
        if ended:
            client.eof_received()

    def half_closed(self) -> None:
        """One direction has ended; the other may be silent only so long."""
        if all(side.has_ended for side in self._sides):
            for side in self._sides:
                side.source.close()
            return
        self.moved()

    def moved(self) -> None:
        """Bytes went through a splice that is already closed in one direction."""
        self.deadline = self._hub.loop.time() + self._hub.config.idle_timeout_s

    def lost(self) -> None:
        """One of the two connections is gone."""
        for side in self._sides:
            side.source.close()
        if all(side.is_gone for side in self._sides):
            self._hub.splices.discard(self)
            self._on_end()
        else:
            self.deadline = self._hub.loop.time() + self._hub.config.half_close_s

    def expire(self, _now: float) -> None:
        self.end(gently=False)

    def end(self, *, gently: bool) -> None:
        """Nobody can say when an upgraded connection is done, so it ends only when it has to."""
        if not gently:
            for side in self._sides:
                side.source.abort()


class _Side(asyncio.Protocol):
    """Reads one transport and writes to the other."""

    def __init__(
        self, splice: Splice, source: asyncio.Transport, target: asyncio.Transport
    ) -> None:
        self.source = source
        self.has_ended = False
        self.is_gone = False
        self._splice = splice
        self._target = target

    def data_received(self, data: bytes) -> None:
        self._target.write(data)
        if self._splice.deadline != NEVER:
            self._splice.moved()

    def eof_received(self) -> bool:
        self.has_ended = True
        if self._target.can_write_eof() and not self._target.is_closing():
            self._target.write_eof()
        self._splice.half_closed()
        return True

    def pause_writing(self) -> None:
        if not self._target.is_closing():
            self._target.pause_reading()

    def resume_writing(self) -> None:
        if not self._target.is_closing() and not self.is_gone:
            self._target.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self.has_ended = self.is_gone = True
        self._splice.lost()
