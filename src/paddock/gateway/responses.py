"""Answers of HTTP/1.1, read to be written anew without the values that went into the requests."""

import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from paddock.gateway.frames import Frames
from paddock.gateway.redacting import NOTHING, Matcher, Redactor

LARGEST_HEAD = 131072
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})( [^\r\n]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\r\n]*)?")
_LONGEST_LINE = 4096
_DROPPED = frozenset((b"content-length", b"transfer-encoding", b"trailer", b"connection"))
_PACKED = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
_STEP = 65536
_MOST_AT_ONCE = 16 << 20


class Unreadable(Exception):
    """What is no answer, or one whose content cannot be looked at."""


class Sink(Protocol):
    """Who wants to see a body as it is, and may leave some of it out."""

    def feed(self, data: bytes) -> bytes:
        """A piece of it, and what the client gets now."""

    def end(self) -> bytes:
        """That was all, and what the client gets still."""


class Responses:
    """Of one connection, in the order of its requests."""

    def __init__(self, matcher: Callable[[], Matcher]) -> None:
        self._matcher = matcher
        self._asked: deque[str] = deque()
        self._held = bytearray()
        self._read: Callable[[], bytes | None] = self._head
        self._body = Body(Redactor(NOTHING, same_length=True), chunked=False)
        self._left = 0
        self.watch: Callable[[int, Mapping[bytes, list[bytes]]], Sink | None] | None = None
        """Asked about each answer, by its status and headers, who wants to see its body."""
        self.may_splice = True
        self.spliced = False
        """Something else than HTTP is spoken from here on."""

    def expect(self, method: str) -> None:
        """A request was sent on."""
        self._asked.append(method)

    @property
    def is_idle(self) -> bool:
        """No answer is owed or under way."""
        return not self._asked and not self._held and self._read == self._head

    @property
    def is_between(self) -> bool:
        """Nothing of an answer was given to the client that is not all of it."""
        return self._read == self._head

    def feed(self, data: bytes) -> bytes:
        """What the client gets of it. Unreadable ends the connection."""
        self._held += data
        out = []
        while (made := self._read()) is not None:
            out.append(made)
        return b"".join(out)

    def end(self) -> bytes:
        """The server has closed: what lasts until then is complete."""
        return self._body.end() if self._read in (self._until_close, self._raw) else b""

    @property
    def holds(self) -> bool:
        """Whether a part of a body is held back."""
        return self._body.holds

    def release(self) -> bytes:
        """Return what is held back, because no more data has arrived."""
        return self._body.release()

    def _taken(self, size: int) -> bytes:
        data = bytes(self._held[:size])
        del self._held[:size]
        return data

    def _line(self, limit: int = _LONGEST_LINE) -> bytes | None:
        end = self._held.find(b"\r\n", 0, limit)
        if end < 0:
            if len(self._held) >= limit:
                raise Unreadable("a line of the answer is too long")
            return None
        return self._taken(end + 2)[:-2]

    def _head(self) -> bytes | None:
        end = self._held.find(b"\r\n\r\n")
        if end < 0:
            if len(self._held) > LARGEST_HEAD:
                raise Unreadable(f"the head of the answer has more than {LARGEST_HEAD} bytes")
            return None
        if not self._asked:
            raise Unreadable("an answer came that nobody asked for")
        status_line, *lines = self._taken(end + 4)[:-4].split(b"\r\n")
        status = _STATUS.fullmatch(status_line)
        fields = [_FIELD.fullmatch(line) for line in lines]
        if status is None or None in fields:
            raise Unreadable("the head of the answer is malformed")
        headers = [(field[1], field[2]) for field in fields if field is not None]
        return self._begin(int(status[1]), status_line, headers)

    def _begin(self, code: int, line: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
        found: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            found.setdefault(name.lower(), []).append(value)
        if code < 200:
            return self._interim(code, line, headers)
        bodiless = self._asked.popleft() == "HEAD" or code in (204, 304)
        sink = self.watch(code, found) if self.watch is not None else None
        if bodiless:
            return self._rendered(line, headers)
        more = self._framing(found)
        self._body.sink = sink
        kept = [each for each in headers if each[0].lower() not in _DROPPED]
        if self._body.unpacks:
            kept = [each for each in kept if each[0].lower() != b"content-encoding"]
        return self._rendered(line, [*kept, *more])

    def _interim(self, code: int, line: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
        if code == 101:
            if not self.may_splice:
                raise Unreadable("the answer goes over to another protocol")
            self._asked.popleft()
            self.spliced = True
            self._body = Body(self._redactor(same_length=True), chunked=False)
            self._body.frames = Frames()
            self._read = self._raw
        return self._rendered(line, headers)

    def _framing(self, found: Mapping[bytes, list[bytes]]) -> list[tuple[bytes, bytes]]:
        """How the body is read from here on, and the headers that say how it is written."""
        closing = (
            [(b"Connection", b", ".join(found[b"connection"]))] if b"connection" in found else []
        )
        packed = b",".join(found.get(b"content-encoding", [])).strip().lower()
        if packed not in (b"", b"identity", *_PACKED):
            raise Unreadable(f"the answer is packed as {packed[:40].decode('latin-1')}")
        unpack = _PACKED.get(packed)
        lengths, encoding = found.get(b"content-length", []), found.get(b"transfer-encoding", [])
        if encoding:
            if [each.strip().lower() for each in encoding] != [b"chunked"] or lengths:
                raise Unreadable("the answer's framing can be understood in two ways")
            self._read = self._chunk_size
        elif lengths:
            if len(set(lengths)) != 1 or not lengths[0].isdigit():
                raise Unreadable("the answer has no readable length")
            self._left, self._read = int(lengths[0]), self._of_length
        else:
            self._read = self._until_close
            closing = [(b"Connection", b"close")]
        chunked = bool(encoding) or (unpack is not None and bool(lengths))
        same_length = bool(lengths) and not chunked
        self._body = Body(self._redactor(same_length=same_length), chunked=chunked, unpack=unpack)
        if chunked:
            return [*closing, (b"Transfer-Encoding", b"chunked")]
        return [*closing, (b"Content-Length", lengths[0])] if lengths else closing

    def _redactor(self, *, same_length: bool) -> Redactor:
        return Redactor(self._matcher(), same_length=same_length)

    def _rendered(self, line: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
        made = line + b"\r\n" + b"".join(b"%b: %b\r\n" % each for each in headers) + b"\r\n"
        redactor = self._redactor(same_length=False)
        return redactor.feed(made) + redactor.release()

    def _finished(self) -> bytes:
        made = self._body.end()
        self._read = self._head
        return made

    def _of_length(self) -> bytes | None:
        if self._left and not self._held:
            return None
        data = self._taken(min(self._left, len(self._held)))
        self._left -= len(data)
        made = self._body.feed(data)
        return made if self._left else made + self._finished()

    def _until_close(self) -> bytes | None:
        return self._body.feed(self._taken(len(self._held))) if self._held else None

    _raw = _until_close

    def _chunk_size(self) -> bytes | None:
        line = self._line()
        if line is None:
            return None
        size = _CHUNK.fullmatch(line)
        if size is None:
            raise Unreadable("a chunk of the answer has no readable size")
        self._left = int(size[1], 16)
        self._read = self._chunk if self._left else self._trailer
        return b""

    def _chunk(self) -> bytes | None:
        if not self._held:
            return None
        if self._left:
            data = self._taken(min(self._left, len(self._held)))
            self._left -= len(data)
            return self._body.feed(data)
        if len(self._held) < 2:
            return None
        if self._taken(2) != b"\r\n":
            raise Unreadable("a chunk of the answer is longer than it says")
        self._read = self._chunk_size
        return b""

    def _trailer(self) -> bytes | None:
        """Left out: what it says is of use to nobody who did not ask for it."""
        line = self._line()
        if line is None:
            return None
        return b"" if line else self._finished()


class Body:
    """What a body becomes on its way."""

    def __init__(self, redactor: Redactor, *, chunked: bool, unpack: int | None = None) -> None:
        self._redactor = redactor
        self._chunked = chunked
        self.unpacks = unpack is not None
        self.sink: Sink | None = None
        self.frames: Frames | None = None
        """The frames of a WebSocket: each is delivered when it ends."""
        self._unpacking = Unpacking(unpack) if unpack is not None else None

    @property
    def holds(self) -> bool:
        return self._redactor.holds

    def feed(self, data: bytes) -> bytes:
        if self._unpacking is None:
            return self._framed(self._looked_at(data))
        return self._framed(b"".join(map(self._looked_at, self._unpacking.feed(data))))

    def _looked_at(self, data: bytes) -> bytes:
        if self.sink is not None:
            data = self.sink.feed(data)
        return self._redactor.feed(data, self.frames.last_end(data) if self.frames else 0)

    def release(self) -> bytes:
        return self._framed(self._redactor.release())

    def end(self) -> bytes:
        if self._unpacking is not None:
            self._unpacking.end()
        rest = self._redactor.feed(self.sink.end()) if self.sink is not None else b""
        made = self._framed(rest + self._redactor.release())
        return made + b"0\r\n\r\n" if self._chunked else made

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data


class Unpacking:
    """Decompresses a body. A gzip body may have several members, which form one text."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._member = zlib.decompressobj(bits)
        self._is_begun = False
        """Whether a member has begun and not ended."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        size = 0
        while data:
            if self._member.eof:
                data = self._next_member(data)
                continue
            try:
                made = self._member.decompress(data, _STEP)
            except zlib.error as error:
                raise Unreadable(f"the answer is not packed as it says: {error}") from error
            data = self._member.unconsumed_tail or self._member.unused_data
            self._is_begun = not self._member.eof
            size += len(made)
            if size > _MOST_AT_ONCE:
                raise Unreadable("the answer is packed so tightly that it would fill memory")
            yield made

    def _next_member(self, data: bytes) -> bytes:
        """Return the data of the next member. gzip allows padding with zeros between members."""
        if self._bits == _PACKED[b"gzip"]:
            data = data.lstrip(b"\0")
        else:
            raise Unreadable("the response continues after the end of its compressed data")
        if data:
            self._member = zlib.decompressobj(self._bits)
        return data

    def end(self) -> None:
        """Raise Unreadable if the body is truncated: the client would take it for complete."""
        if self._is_begun:
            raise Unreadable("the response ends in the middle of its compressed data")
