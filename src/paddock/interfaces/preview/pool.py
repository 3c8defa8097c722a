"""Upstream connections that wait for their next request."""

from collections.abc import Hashable
from typing import Protocol

from paddock.interfaces.preview.config import FrontConfig


class Idle(Protocol):
    """A connection that can wait."""

    key: Hashable
    idle_until: float

    @property
    def is_usable(self) -> bool:
        """The other side has not begun to close it."""
        ...

    def close(self) -> None: ...


class Pool:
    """Idle connections by key, the one used last first, so that the others can expire."""

    def __init__(self, config: FrontConfig) -> None:
        self._config = config
        self._idle: dict[Hashable, list[Idle]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def take(self, key: Hashable) -> Idle | None:
        waiting = self._idle.get(key)
        while waiting:
            self._count -= 1
            connection = waiting.pop()
            if connection.is_usable:
                return connection
        return None

    def put(self, connection: Idle) -> bool:
        """False when there is no room; the caller closes it then."""
        waiting = self._idle.get(connection.key)
        if waiting is None:
            waiting = self._idle[connection.key] = []
        config = self._config
        if len(waiting) >= config.max_idle_per_upstream or self._count >= config.max_idle_upstreams:
            return False
        waiting.append(connection)
        self._count += 1
        return True

    def discard(self, connection: Idle) -> None:
        """It was closed from the other side."""
        waiting = self._idle.get(connection.key, [])
        if connection in waiting:
            waiting.remove(connection)
            self._count -= 1

    def expire(self, now: float) -> None:
        for key in list(self._idle):
            self._close([each for each in self._idle[key] if each.idle_until <= now])
            if not self._idle[key]:
                del self._idle[key]

    def forget(self, key: Hashable) -> None:
        """Close what waits under this key."""
        self._close(self._idle.get(key, [])[:])

    def clear(self) -> None:
        self.expire(float("inf"))

    def _close(self, connections: list[Idle]) -> None:
        for connection in connections:
            self.discard(connection)
            connection.close()
