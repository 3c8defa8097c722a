"""Finds the boundaries of WebSocket frames."""

_MASKED, _LENGTH = 0x80, 0x7F
_LONG = {126: 2, 127: 8}
"""The size in bytes of an extended payload length."""


class Frames:
    """The frames of one direction of a connection."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def last_end(self, data: bytes) -> int:
        """Return where the last complete frame in this data ends; 0 if none ends here."""
        at, end = self._left, 0
        if at > len(data):
            self._left -= len(data)
            return 0
        if at:
            end = at
        while at < len(data):
            head = self._head + data[at : at + 14 - len(self._head)]
            size = _head_size(head)
            if size is None:
                self._head = head
                break
            at += size - len(self._head)
            self._head = b""
            at += _payload_size(head)
            if at <= len(data):
                end = at
        self._left = max(0, at - len(data))
        return end


def _head_size(head: bytes) -> int | None:
    """Return the size of a frame's header; None while it is incomplete."""
    if len(head) < 2:
        return None
    size = 2 + _LONG.get(head[1] & _LENGTH, 0) + (4 if head[1] & _MASKED else 0)
    return size if len(head) >= size else None


def _payload_size(head: bytes) -> int:
    short = head[1] & _LENGTH
    return int.from_bytes(head[2 : 2 + _LONG[short]], "big") if short in _LONG else short
