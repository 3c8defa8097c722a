"""Holds back the end of a response for a fixed time while no more data arrives."""

import asyncio
from collections.abc import Callable

from paddock.gateway.relay import Relay

RELEASE_S = 1.0
"""Longer than a lost packet takes to be sent again. A value whose second half arrives later than
this is delivered in two halves, and not redacted."""


class Holdback:
    """The timer of one connection. It restarts with any data from the server, and runs only while
    the server is read: a client that stops reading cannot split a value."""

    def __init__(self, relay: Relay, release: Callable[[], bytes]) -> None:
        self._relay = relay
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Restart the timer: data has arrived, and some of it is held back."""
        self._heard = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(RELEASE_S, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._relay.is_client_full else max(self._heard, self._relay.read_since)
        self._timer = None
        if now < since + RELEASE_S:
            self._timer = self._loop.call_at(since + RELEASE_S, self._look)
        elif made := self._release():
            self._relay.tell(made)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
