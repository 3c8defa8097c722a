"""An upstream's answer: its head read, and written anew for the client."""

import re
from dataclasses import dataclass

import httptools

from paddock.interfaces.preview.bodies import Body, Chunked, Sized, UntilClose
from paddock.interfaces.preview.contract import Edits, Header
from paddock.interfaces.preview.heads import HOP_BY_HOP, NONE, named_in, tokens
from paddock.interfaces.preview.refusal import Garbled

_START = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r\n")
_NOTED = HOP_BY_HOP | {b"content-length", b"transfer-encoding"}
_KEEP_ALIVE = re.compile(rb"timeout\s*=\s*([0-9]{1,6})", re.I)


class _Reader:
    """What httptools finds in one head."""

    __slots__ = ("noted", "passed")

    def __init__(self) -> None:
        self.passed: list[Header] = []
        self.noted: dict[bytes, bytes] = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower in _NOTED:
            noted = self.noted
            noted[lower] = noted[lower] + b", " + value if lower in noted else value
        if lower == b"set-cookie":
            value = for_one_host(value)
        if lower not in HOP_BY_HOP:
            self.passed.append((lower, b"%b: %b\r\n" % (name, value)))


def for_one_host(cookie: bytes) -> bytes:
    """A Set-Cookie without `Domain`: a sandbox sets no cookies for its siblings' hosts."""
    pair, *attributes = cookie.split(b";")
    kept = [each for each in attributes if each.partition(b"=")[0].strip().lower() != b"domain"]
    return b";".join([pair, *kept])


@dataclass(slots=True)
class Response:
    """The head of an answer."""

    status: int
    start: bytes
    """Status and reason, as sent."""
    passed: list[Header]
    dropped: frozenset[bytes]
    length: int | None
    is_chunked: bool
    keep_alive: bool
    idle_s: float | None
    """How long the upstream says it keeps an idle connection."""
    upgrade: bytes

    def body(self, method: str, *, keep: bool) -> Body | None:
        """None where there is none. `keep`: chunks will be needed without their frames."""
        if method == "HEAD" or self.status in (204, 304) or self.length == 0:
            return None
        if self.is_chunked:
            return Chunked(keep=keep)
        return UntilClose() if self.length is None else Sized(self.length)

    def for_client(self, edits: Edits, ending: bytes, *, unframed: bool = False) -> bytes:
        """The head as the client gets it; `ending` are the lines about the connection."""
        if self.dropped or edits.names or unframed or self.status == 204:
            dropped = self.dropped | edits.names
            if unframed or self.status == 204:
                dropped |= {b"transfer-encoding"}
            lines = b"".join([line for name, line in self.passed if name not in dropped])
        else:
            lines = b"".join([line for _, line in self.passed])
        return b"HTTP/1.1 %b%b%b%b\r\n" % (self.start, lines, edits.block, ending)


def read_response(raw: bytes) -> Response:
    """An answer from its whole head. Raises Garbled."""
    start = _START.match(raw)
    if start is None:
        raise Garbled("it did not begin with an HTTP/1 status line")
    reader = _Reader()
    try:
        httptools.HttpResponseParser(reader).feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        # After a 101 httptools stops. Without `Connection: Upgrade`, which some servers leave out,
        # it has no better word for that.
        if start[2] != b"101" or not str(error).startswith("Pause on"):
            raise Garbled(str(error)) from error
    noted = reader.noted
    is_chunked = b"transfer-encoding" in noted
    if is_chunked and noted[b"transfer-encoding"].strip().lower() != b"chunked":
        raise Garbled("its transfer encoding is not chunked")
    connection = tokens(noted[b"connection"]) if b"connection" in noted else NONE
    is_old = start[1] == b"0"
    return Response(
        status=int(start[2]),
        start=raw[9 : start.end()],
        passed=reader.passed,
        dropped=named_in(connection),
        length=int(noted[b"content-length"]) if b"content-length" in noted else None,
        is_chunked=is_chunked,
        keep_alive=b"keep-alive" in connection if is_old else b"close" not in connection,
        idle_s=_idle(noted[b"keep-alive"]) if b"keep-alive" in noted else None,
        upgrade=noted.get(b"upgrade", b""),
    )


def _idle(keep_alive: bytes) -> float | None:
    found = _KEEP_ALIVE.search(keep_alive)
    return float(found[1]) if found else None
