"""A streaming parser of multipart/form-data that never holds more than a piece of a part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Callable

from .errors import invalid
from .query import unquote

_HEADERS_LIMIT = 16 << 10
Read = Callable[[], Awaitable[bytes]]


class Part:
    """One part of the form. Its data must be read to the end before the next part is asked for."""

    def __init__(self, form: Form, disposition: dict[str, str]) -> None:
        self._form = form
        self.name = disposition.get("name", "")
        self.filename = disposition.get("filename")

    async def read(self) -> bytes:
        """The next piece; empty at the end of the part."""
        return await self._form.read_piece()


class Form:
    """The body of a request, taken apart as it arrives."""

    def __init__(self, content_type: str, read: Read) -> None:
        boundary = parse_parameters(content_type).get("boundary", "")
        if not boundary or len(boundary) > 200:
            raise invalid("the multipart content type has no usable boundary")
        self._delimiter = b"\r\n--" + boundary.encode("latin-1")
        self._read = read
        # The very first delimiter has no line before it.
        self._buffer = bytearray(b"\r\n")
        self._in_part = False

    async def parts(self) -> AsyncIterator[Part]:
        await self._skip_to_delimiter()
        while await self._has_next_part():
            part = Part(self, _disposition(await self._read_headers()))
            self._in_part = True
            yield part
            while await self.read_piece():
                pass

    async def read_piece(self) -> bytes:
        """What is certain to belong to the current part; empty when the delimiter is reached."""
        while self._in_part:
            at = self._buffer.find(self._delimiter)
            if at == 0:
                del self._buffer[: len(self._delimiter)]
                self._in_part = False
                break
            certain = at if at > 0 else len(self._buffer) - len(self._delimiter) + 1
            if certain > 0:
                return self._take(certain)
            await self._fill()
        return b""

    async def _skip_to_delimiter(self) -> None:
        self._in_part = True
        while await self.read_piece():
            pass

    async def _has_next_part(self) -> bool:
        """After a delimiter: `--` ends the form, a line break begins a part."""
        while b"\n" not in self._buffer[:200] and self._buffer[:2] != b"--":
            if len(self._buffer) > 200:
                raise invalid("a multipart delimiter is followed by something else than a line")
            await self._fill()
        if self._buffer[:2] == b"--":
            return False
        del self._buffer[: self._buffer.index(b"\n") + 1]
        return True

    async def _read_headers(self) -> list[bytes]:
        lines: list[bytes] = []
        size = 0
        while True:
            while b"\r\n" not in self._buffer:
                if len(self._buffer) > _HEADERS_LIMIT:
                    raise invalid("the headers of a part are too long")
                await self._fill()
            line = self._take(self._buffer.index(b"\r\n"))
            del self._buffer[:2]
            if not line:
                return lines
            size += len(line)
            if size > _HEADERS_LIMIT:
                raise invalid("the headers of a part are too long")
            lines.append(line)

    def _take(self, count: int) -> bytes:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def _fill(self) -> None:
        data = await self._read()
        if not data:
            raise invalid("the multipart body ended too early")
        self._buffer += data


def parse_parameters(value: str) -> dict[str, str]:
    """`a; b=c; d="e f"; g*=UTF-8''h` as a dictionary of the parameters, names in lower case."""
    found: dict[str, str] = {}
    rest = value.partition(";")[2]
    while rest:
        name, equals, rest = rest.partition("=")
        name = name.strip().lower()
        if not equals:
            break
        rest = rest.lstrip()
        if rest.startswith('"'):
            content, rest = _quoted(rest[1:])
        else:
            content, _, rest = rest.partition(";")
            content = content.strip()
        if name.endswith("*"):
            found[name[:-1]] = unquote(content.rpartition("'")[2])
        else:
            found.setdefault(name, content)
    return found


def _quoted(text: str) -> tuple[str, str]:
    """The content of a quoted string, and what comes after it."""
    content, escaped = [], False
    for at, character in enumerate(text):
        if escaped or (character not in '"\\'):
            content.append(character)
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            return "".join(content), text[at + 1 :].partition(";")[2]
    raise invalid("a quoted string in a header does not end")


def _disposition(lines: list[bytes]) -> dict[str, str]:
    for line in lines:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-disposition":
            return parse_parameters(value.decode("utf-8", "surrogateescape"))
    return {}
