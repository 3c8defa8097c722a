"""What is on its way to the other side, and is kept until that takes it."""

from collections import deque
from typing import Any

PIECE = 1 << 16


class Outbox:
    """Handed over piece by piece: what a transport was given at once it keeps, and tells nobody."""

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque()
        self._gone = 0
        """Of the first of them."""
        self.size = 0
        """All of whatever has not gone to its last byte."""
        self.upstream: Any = None
        self.is_full = False
        """It takes nothing more for now."""

    def put(self, data: bytes) -> None:
        self._kept.append(data)
        self.size += len(data)

    def hand_over(self) -> None:
        """As much as is taken; it may say in the midst of it that it is full."""
        while self._kept and self.upstream is not None and not self.is_full:
            first = self._kept[0]
            piece = first if len(first) <= PIECE else first[self._gone : self._gone + PIECE]
            self._gone += len(piece)
            if self._gone == len(first):
                self._kept.popleft()
                self._gone = 0
                self.size -= len(first)
            self.upstream.write(piece)

    def clear(self) -> None:
        self._kept.clear()
        self._gone = self.size = 0
