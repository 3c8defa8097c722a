"""Requests of plain HTTP: each is read strictly, judged, and written anew for the other side.

Nothing of a head is passed on before all of it was judged, and nothing in the form it came in, so
that no server can read another request in it than was read here.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import httptools

from paddock.domain.egress import names
from paddock.gateway.injecting import Head, Size

LARGEST_HEAD = 65536
_ABSOLUTE = re.compile(rb"http://([^/?#]+)([^#]*)", re.I)
_DROPPED = frozenset(
    (
        b"connection",
        b"proxy-connection",
        b"proxy-authorization",
        b"keep-alive",
        b"upgrade",
        b"http2-settings",
        b"host",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"content-length",
    )
)


class Malformed(Exception):
    """What is no request, or one that could be understood in two ways."""


class Denied(Exception):
    """A request that may not be made; what is to be said about it is known to who denied it."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a request is for."""

    host: str
    """As it is named in the request, normal; empty when it names none."""
    port: int | None
    method: str
    path: str
    upgrades: bool = False
    """A WebSocket is asked for."""
    protocol: str = ""
    """Another protocol that the client wants to continue in."""


Judge = Callable[[Request], None]
"""Raises Denied."""
Rewrite = Callable[[Head], Head]
"""What is sent instead. Raises Denied."""


class Whole(Protocol):
    """A request that is read to its end before any of it is passed on."""

    def take(self, data: bytes) -> None:
        """Some of its body. Raises Denied."""

    def complete(self, head: Callable[[bytes], bytes]) -> bytes:
        """What is passed on of it now: `head` makes one with the framing that it is given."""


Gather = Callable[[], Whole | None]
"""Asked after each head whether the request is to be read as a whole."""


@dataclass(frozen=True, slots=True)
class Output:
    """What is to be passed on."""

    data: bytes
    upgraded: bool = False
    """A WebSocket was asked for: what follows is to wait for the answer."""
    rest: bytes = b""
    """What came after such a request."""


class Requests:
    """The requests of one connection, in their order."""

    def __init__(
        self,
        judge: Judge,
        authority: str,
        *,
        once: bool = False,
        rewrite: Rewrite | None = None,
        gather: Gather | None = None,
    ) -> None:
        self._judge = judge
        self._rewrite = rewrite
        self._gather = gather
        self._authority = authority.encode()
        self._once = once
        """A proxy's connection to one host: it ends after one answer."""
        self.count = 0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._out: list[bytes] = []
        self._reset()

    def _reset(self) -> None:
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = False
        self._head_size = 0
        self._chunked = False
        self._websocket = False
        self._size = Size()
        self._whole: Whole | None = None

    @property
    def is_in_head(self) -> bool:
        """A request has begun, and nobody knows yet which."""
        return self._in_head

    def feed(self, data: bytes) -> Output:
        """What may be passed on of it. Malformed and Denied end the connection."""
        self._head_size += len(data) if self._in_head else 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, Denied | Malformed):
                raise error.__context__ from None
            raise Malformed(str(error)) from error
        except httptools.HttpParserError as error:
            raise Malformed(str(error)) from error
        if self._in_head and self._head_size > LARGEST_HEAD:
            raise Malformed(f"the head has more than {LARGEST_HEAD} bytes")
        return Output(self._taken())

    def _taken(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _upgrade(self, rest: bytes) -> Output:
        websocket, data = self._websocket, self._taken()
        self._begin()
        if websocket:
            return Output(data, upgraded=True, rest=rest)
        # Another protocol was offered and is not taken up: what follows are requests as before.
        more = self.feed(rest) if rest else Output(b"")
        return Output(data + more.data, more.upgraded, more.rest)

    def on_message_begin(self) -> None:
        self._reset()
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        method = self._parser.get_method()
        found = _noted(self._headers)
        host, path = self._target(method, found)
        name, port = split_host(host)
        verb = method.decode("latin-1")
        self._websocket = self._is_websocket(found)
        other = "" if self._websocket else _protocol(found)
        self._judge(Request(name, port, verb, path.decode("latin-1"), self._websocket, other))
        self.count += 1
        if self._rewrite is not None:
            self._size.bytes = int(found.get(b"content-length", [b"0"])[0])
            head = self._rewrite(Head(verb, path, self._end_to_end(found), self._size))
            path, self._headers = head.path, list(head.headers)
        framing = self._framing(found)
        self._render = partial(self._head, method, path, found)
        self._whole = self._gather() if self._gather is not None else None
        if self._whole is None:
            self._out.append(self._render(framing))

    def _is_websocket(self, found: dict[bytes, list[bytes]]) -> bool:
        upgrade = b", ".join(found.get(b"upgrade", [])).strip()
        return b"upgrade" in _named(found) and upgrade.lower() == b"websocket" and not self._once

    def _end_to_end(self, found: dict[bytes, list[bytes]]) -> tuple[tuple[bytes, bytes], ...]:
        """Without what is between a client and its neighbour only."""
        named = _named(found)
        return tuple(
            (name, value)
            for name, value in self._headers
            if name.lower() not in _DROPPED and name.lower() not in named
        )

    def _target(self, method: bytes, found: dict[bytes, list[bytes]]) -> tuple[str, bytes]:
        """The host that is named, and the path."""
        if method == b"CONNECT":
            raise Malformed("CONNECT is for the proxy at 127.0.0.1:3128")
        hosts = found.get(b"host", [])
        if len(hosts) > 1 or (not hosts and self._parser.get_http_version() == "1.1"):
            raise Malformed(f"there are {len(hosts)} Host headers, not one")
        host = hosts[0].decode("latin-1").strip() if hosts else ""
        if absolute := _ABSOLUTE.fullmatch(self._url):
            named = absolute[1].decode("latin-1")
            if host and split_host(host) != split_host(named):
                raise Malformed("the request line and the Host header name different hosts")
            path = absolute[2]
            return named, path if path.startswith(b"/") else b"/" + path
        if not self._url.startswith(b"/") and self._url != b"*":
            raise Malformed("the target is neither a path nor a URL")
        return host, self._url

    def _head(
        self, method: bytes, path: bytes, found: dict[bytes, list[bytes]], framing: bytes
    ) -> bytes:
        named = _named(found)
        lines = [b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (method, path, self._authority)]
        headers = self._headers if self._rewrite is not None else self._end_to_end(found)
        lines += [b"%b: %b\r\n" % each for each in headers]
        lines.append(framing)
        old = self._parser.get_http_version() == "1.0"
        if self._websocket:
            lines.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
        elif self._once or b"close" in named or (old and b"keep-alive" not in named):
            lines.append(b"Connection: close\r\n")
        return b"".join(lines) + b"\r\n"

    def _framing(self, found: dict[bytes, list[bytes]]) -> bytes:
        """httptools has refused both at once, and repeated or unreadable lengths."""
        if b"transfer-encoding" in found:
            if [value.strip().lower() for value in found[b"transfer-encoding"]] != [b"chunked"]:
                raise Malformed("of all transfer encodings only chunked is understood")
            if b"upgrade" in found:
                raise Malformed("a request for an upgrade has no body")
            self._chunked = True
            return b"Transfer-Encoding: chunked\r\n"
        if b"content-length" in found:
            if b"upgrade" in found and found[b"content-length"][0].strip() != b"0":
                raise Malformed("a request for an upgrade has no body")
            return b"Content-Length: %b\r\n" % found[b"content-length"][0].strip()
        return b""

    def on_body(self, data: bytes) -> None:
        if self._chunked:
            self._size.bytes += len(data)
        if self._whole is not None:
            self._whole.take(data)
            return
        self._out.append(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def on_message_complete(self) -> None:
        if self._whole is not None:
            self._out.append(self._whole.complete(self._render))
        elif self._chunked:
            self._out.append(b"0\r\n\r\n")


def _named(found: dict[bytes, list[bytes]]) -> set[bytes]:
    """The headers that are said to be for the neighbour."""
    values = found.get(b"connection", [])
    return {part.strip().lower() for value in values for part in value.split(b",")}


def _protocol(found: dict[bytes, list[bytes]]) -> str:
    """Return the protocol of an upgrade."""
    if b"upgrade" not in _named(found):
        return ""
    return b", ".join(found.get(b"upgrade", [])).strip().decode("latin-1")


def _noted(headers: list[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value)
    return found


def split_host(authority: str) -> tuple[str, int | None]:
    """A host as a request names it, in normal form, and its port if it has one.

    The host is empty for none, and `?` for what is none: it is nobody's then.
    """
    if not authority:
        return "", None
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdigit() or not port.isascii():
        host, port = authority.removesuffix(":"), ""
    if re.fullmatch(r"[0-9.]+", host):
        return host, int(port) if port else None
    return names.normal(host) or "?", int(port) if port else None


def connect_target(data: bytes) -> tuple[Any, bytes] | None:
    """The authority that a proxy's first request names with CONNECT, and what follows its head.

    None for another method; ValueError for what is no request.
    """
    seen: list[bytes] = []

    class _Reader:
        def on_url(self, url: bytes) -> None:
            seen.append(url)

    parser = httptools.HttpRequestParser(_Reader())
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade as upgrade:
        if parser.get_method() != b"CONNECT":
            return None
        return b"".join(seen).decode("latin-1"), data[upgrade.args[0] :]
    except httptools.HttpParserError as error:
        raise ValueError(str(error)) from error
    return None
