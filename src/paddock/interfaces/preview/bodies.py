"""Where a message's body ends: by length, by chunks, or with the connection.

Bodies are passed on byte by byte; these classes only find the end. httptools cannot say at which
byte a message ended, which a pipelined request after a chunked one makes necessary to know. So
chunks are counted here, by a stricter grammar, and httptools has to come to the same end.
"""

import re
from typing import Protocol

import httptools

from paddock.interfaces.preview.refusal import Refusal, malformed

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t\x20-\x7e\x80-\xff]*\r\n")
_NOT_IN_TRAILERS = frozenset(
    b"content-length transfer-encoding host connection upgrade authorization cookie "
    b"x-forwarded-for x-forwarded-proto x-forwarded-host x-forwarded-port forwarded".split()
)
_MAX_LINE = 4096
_MAX_TRAILERS = 16 * 1024
_PRIMER = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class Body(Protocol):
    """A body that is not complete yet."""

    done: bool

    def take(self, data: bytes) -> int:
        """How many of these bytes belong to it. Raises Refusal for what is no body."""
        ...


class Sized:
    """A body with a Content-Length."""

    __slots__ = ("_left", "done")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def take(self, data: bytes) -> int:
        taken = min(self._left, len(data))
        self._left -= taken
        self.done = self._left == 0
        return taken


class UntilClose:
    """An answer's body that ends with the connection."""

    __slots__ = ()
    done = False

    def take(self, data: bytes) -> int:
        return len(data)


class Chunked:
    """A body in chunks. With `keep` their payload can be had without the frames."""

    __slots__ = ("_complete", "_keep", "_left", "_line", "_next", "_parser", "_trailers", "done")

    def __init__(self, *, keep: bool = False) -> None:
        self.done = False
        self._complete = False
        self._left = 0
        self._line = b""
        self._next = self._size
        self._trailers = 0
        self._keep: list[bytes] | None = [] if keep else None
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(_PRIMER)

    @property
    def is_between(self) -> bool:
        """Whether the next byte is the first of a chunk's size."""
        return not (self.done or self._left or self._line) and self._next == self._size

    def payload(self) -> bytes:
        """What the chunks since the last call held, without their frames."""
        kept = b"".join(self._keep or ())
        if self._keep:
            self._keep.clear()
        return kept

    def take(self, data: bytes) -> int:
        end = self._scan(data)
        try:
            self._parser.feed_data(data if end == len(data) else data[:end])
        except httptools.HttpParserError as error:
            raise malformed(f"the chunked body is malformed: {error}") from error
        if self._complete is not self.done:
            raise malformed("the chunked body is ambiguous")
        return end

    def on_message_complete(self) -> None:
        """httptools sees the end."""
        self._complete = True

    def _scan(self, data: bytes) -> int:
        position, size = 0, len(data)
        while position < size and not self.done:
            if self._left:
                end = min(position + self._left, size)
                self._left -= end - position
                if self._keep is not None:
                    self._keep.append(data[position:end])
            else:
                end = data.find(b"\n", position) + 1 or size
                self._add(data[position:end])
            position = end
        return position

    def _add(self, piece: bytes) -> None:
        line = self._line + piece
        if len(line) > _MAX_LINE:
            raise malformed("a line of the chunked body is too long")
        if not line.endswith(b"\n"):
            self._line = line
            return
        self._line = b""
        self._next(line)

    def _size(self, line: bytes) -> None:
        found = _SIZE.fullmatch(line)
        if found is None:
            raise malformed("a chunk's size is malformed")
        self._left = int(found[1], 16)
        self._next = self._after if self._left else self._trailer

    def _after(self, line: bytes) -> None:
        if line != b"\r\n":
            raise malformed("a chunk is longer than its size says")
        self._next = self._size

    def _trailer(self, line: bytes) -> None:
        if line == b"\r\n":
            self.done = True
            return
        self._trailers += len(line)
        found = _FIELD.fullmatch(line)
        if found is None or found[1].lower() in _NOT_IN_TRAILERS:
            raise malformed("a trailer of the chunked body is malformed or not allowed there")
        if self._trailers > _MAX_TRAILERS:
            raise Refusal(431, "head_too_large", "the trailers of the body are too large")
