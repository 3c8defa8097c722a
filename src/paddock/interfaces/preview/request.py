"""A request's head: read strictly, and written anew for the upstream."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httptools

from paddock.interfaces.preview.bodies import Body, Chunked, Sized
from paddock.interfaces.preview.config import FrontConfig
from paddock.interfaces.preview.contract import Edits, Header, RequestHead
from paddock.interfaces.preview.forwarding import Origin, split_host
from paddock.interfaces.preview.heads import FORWARDED, HOP_BY_HOP, NONE, named_in, tokens
from paddock.interfaces.preview.refusal import Refusal, malformed

_START = re.compile(rb"([A-Z-]{1,24}) ([\x21-\x7e]+) HTTP/1\.([01])\r\n")
_ABSOLUTE = re.compile(rb"(https?)://([^/?#]+)([^#]*)", re.I)
_DROPPED = HOP_BY_HOP | FORWARDED
_NOTED = _DROPPED | {b"host", b"content-length", b"transfer-encoding"}
_TLS_HANDSHAKE = 0x16
_DEFAULT_PORTS = {b"http": 80, b"https": 443}

FindOrigin = Callable[[str, Mapping[bytes, bytes]], Origin]
"""From the Host header and the forwarding headers. ValueError if the host is none."""


class _Reader:
    """What httptools finds in one head."""

    __slots__ = ("complete", "headers", "noted", "passed")

    def __init__(self) -> None:
        self.complete = False
        self.headers: list[Header] = []
        self.passed: list[Header] = []
        self.noted: dict[bytes, bytes] = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        self.headers.append((name, value))
        if lower in _NOTED:
            noted = self.noted
            noted[lower] = noted[lower] + b", " + value if lower in noted else value
        if lower not in _DROPPED:
            self.passed.append((lower, b"%b: %b\r\n" % (name, value)))

    def on_message_complete(self) -> None:
        self.complete = True


@dataclass(slots=True)
class Request:
    """One request: what the owner is asked about, and what the proxy needs to pass it on."""

    head: RequestHead
    origin: Origin
    passed: list[Header]
    """Names in lower case, with the line to pass."""
    dropped: frozenset[bytes]
    length: int | None
    """None for a body in chunks."""
    keep_alive: bool
    is_old: bool
    """HTTP/1.0: understands neither chunks nor interim answers."""
    upgrade: bytes

    def body(self) -> Body | None:
        if self.length is None:
            return Chunked()
        return Sized(self.length) if self.length else None

    def for_upstream(self, edits: Edits) -> bytes:
        """The head as the upstream gets it."""
        head = self.head
        if self.dropped or edits.names:
            dropped = self.dropped | edits.names
            lines = b"".join([line for name, line in self.passed if name not in dropped])
        else:
            lines = b"".join([line for _, line in self.passed])
        return b"%b %b HTTP/1.1\r\n%b%b%b%b\r\n" % (
            head.method.encode(),
            edits.target or head.target,
            lines,
            self._forwarded(edits),
            edits.block,
            b"Connection: Upgrade\r\nUpgrade: %b\r\n" % self.upgrade if self.upgrade else b"",
        )

    def _forwarded(self, edits: Edits) -> bytes:
        block = self.origin.block
        if edits.names.isdisjoint(FORWARDED):
            return block
        lines = block.splitlines(keepends=True)
        return b"".join(
            [line for line in lines if line.partition(b":")[0].lower() not in edits.names]
        )


def read_request(raw: bytes, config: FrontConfig, find_origin: FindOrigin) -> Request:
    """A request from its whole head. Raises Refusal for everything that could be misunderstood."""
    method, target, minor = _start(raw, config)
    reader = _fed(raw)
    if len(reader.headers) > config.max_headers:
        raise Refusal(431, "head_too_large", f"there are more than {config.max_headers} headers")
    noted = reader.noted
    length = _length(noted, minor)
    host = _host(noted)
    try:
        origin = find_origin(host, noted)
    except ValueError as error:
        raise malformed("the Host header is not one valid host") from error
    if target[0] != 0x2F:
        target = _origin_form(method, target, host)
    connection = tokens(noted[b"connection"]) if b"connection" in noted else NONE
    upgrade = _upgrade(noted, connection) if minor == b"1" and length == 0 else b""
    if not upgrade and b"upgrade" not in connection and reader.complete is not (length == 0):
        raise malformed("where the request ends is ambiguous")
    head = RequestHead(
        method=method.decode(),
        target=target,
        host=origin.host,
        headers=reader.headers,
        client=origin.client,
        scheme=origin.scheme,
        authority=origin.authority,
        is_upgrade=bool(upgrade),
    )
    is_old = minor == b"0"
    return Request(
        head=head,
        origin=origin,
        passed=reader.passed,
        dropped=named_in(connection),
        length=length,
        keep_alive=b"keep-alive" in connection if is_old else b"close" not in connection,
        is_old=is_old,
        upgrade=upgrade,
    )


def check_beginning(partial: bytearray, new: int, config: FrontConfig) -> None:
    """Refuse at once what can never become a request; `new` is where the last bytes begin."""
    if partial[0] == _TLS_HANDSHAKE:
        raise malformed("this port speaks plain HTTP, and TLS was sent to it: use http://")
    if not 0x41 <= partial[0] <= 0x5A:
        raise malformed("this is not HTTP")
    line = partial.find(b"\n", max(0, new - 1))
    while line >= 0:
        if line == 0 or partial[line - 1] != 0x0D:
            raise malformed("a line ends with LF alone; lines end with CR LF")
        line = partial.find(b"\n", line + 1)
    if len(partial) > config.max_request_line_bytes and (
        partial.find(b"\r\n", 0, config.max_request_line_bytes) < 0
    ):
        raise _line_too_long(config)
    if len(partial) > config.max_head_bytes:
        raise _head_too_large(config)


def _start(raw: bytes, config: FrontConfig) -> tuple[bytes, bytes, bytes]:
    """Method, target, and what comes after HTTP/1."""
    found = _START.match(raw)
    if found is None or len(raw) > config.max_head_bytes:
        raise _explained(raw, config)
    if found.end() > config.max_request_line_bytes:
        raise _line_too_long(config)
    return found[1], found[2], found[3]


def _fed(raw: bytes) -> _Reader:
    reader = _Reader()
    try:
        httptools.HttpRequestParser(reader).feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise malformed(f"the request is malformed: {error}") from error
    return reader


def _length(noted: dict[bytes, bytes], minor: bytes) -> int | None:
    """httptools has refused both at once, repeated ones, and what is no number."""
    if b"transfer-encoding" in noted:
        if minor == b"0":
            raise malformed("HTTP/1.0 has no transfer encodings")
        if noted[b"transfer-encoding"].strip().lower() != b"chunked":
            raise malformed("of all transfer encodings only chunked is understood")
        return None
    return int(noted[b"content-length"]) if b"content-length" in noted else 0


def _host(noted: dict[bytes, bytes]) -> str:
    """As it was sent; whether it is one valid host is seen where the origin is found."""
    if b"host" not in noted:
        raise malformed("there is no Host header")
    return noted[b"host"].decode("latin-1").strip()


def _origin_form(method: bytes, target: bytes, host: str) -> bytes:
    if method == b"CONNECT":
        raise Refusal(405, "method_not_allowed", "this is no forward proxy: CONNECT is not offered")
    if target == b"*" and method == b"OPTIONS":
        return target
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        raise malformed("the request's target is neither a path nor a URL")
    default = _DEFAULT_PORTS[found[1].lower()]
    named, meant = split_host(found[2].decode("latin-1")), split_host(host)
    if named is None or meant is None:
        raise malformed("the URL in the request line has no valid host")
    if (named[0], named[1] or default) != (meant[0], meant[1] or default):
        raise malformed("the URL in the request line and the Host header name different hosts")
    return found[3] if found[3].startswith(b"/") else b"/" + found[3]


def _upgrade(noted: dict[bytes, bytes], connection: frozenset[bytes]) -> bytes:
    """The protocol that is asked for.

    Never h2c: through it requests would reach the upstream that nobody has looked at.
    """
    wanted = noted.get(b"upgrade", b"").strip()
    return wanted if b"upgrade" in connection and b"h2c" not in tokens(wanted) else b""


def _explained(raw: bytes, config: FrontConfig) -> Refusal:
    """Why a head is refused before it is even parsed."""
    line = raw.partition(b"\r\n")[0]
    if raw.startswith(b"PRI * HTTP/2"):
        return malformed("HTTP/2 without TLS is not spoken here: use HTTP/1.1")
    if len(line) > config.max_request_line_bytes:
        return _line_too_long(config)
    if len(raw) > config.max_head_bytes:
        return _head_too_large(config)
    try:
        _fed(raw)
    except Refusal as refusal:
        return refusal
    return malformed("the request line is not METHOD SP TARGET SP HTTP/1.1")


def _head_too_large(config: FrontConfig) -> Refusal:
    most = config.max_head_bytes // 1024
    return Refusal(
        431,
        "head_too_large",
        f"the request's headers take more than {most} KiB",
        "clear this site's cookies, or send fewer headers",
    )


def _line_too_long(config: FrontConfig) -> Refusal:
    most = config.max_request_line_bytes // 1024
    message = f"the request line has more than {most} KiB"
    return Refusal(414, "uri_too_long", message, "send what is long in the body")
