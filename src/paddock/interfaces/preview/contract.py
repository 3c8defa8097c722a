"""What the front listener and its owner tell each other: a request's head, and where it goes."""

import socket
import ssl
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from paddock.domain.errors import PaddockError

Header = tuple[bytes, bytes]


@dataclass(slots=True)
class RequestHead:
    """A request as it was received, before a byte of its body is looked at.

    Well formed: exactly one valid Host, framing without contradiction. `headers` are as sent, in
    order, with their case, hop-by-hop ones included.
    """

    method: str
    target: bytes
    """Path and query, never a whole URL; `*` for OPTIONS only."""
    host: str
    """Lower case, without port; the X-Forwarded-Host of a trusted proxy where there is one."""
    headers: Sequence[Header] = ()
    peer: str = ""
    """The address that connected; empty for a unix socket."""
    client: str = ""
    """The address behind trusted proxies, or the peer."""
    scheme: str = "http"
    """As the outside sees it."""
    authority: str = ""
    """Host and port as the outside sees them: what belongs in a link."""
    is_upgrade: bool = False
    """A WebSocket or another protocol is asked for."""

    @property
    def path(self) -> bytes:
        """What is asked for, without the query: rules about paths look at this."""
        return self.target.partition(b"?")[0]

    @property
    def url(self) -> str:
        """What the visitor's address bar shows."""
        return f"{self.scheme}://{self.authority or self.host}{self.target.decode('latin-1')}"

    def get(self, name: bytes) -> bytes | None:
        """The first header of that name, which is given in lower case."""
        for key, value in self.headers:
            if key.lower() == name:
                return value
        return None


@dataclass(frozen=True, slots=True)
class Edits:
    """Changes to a head: names in lower case are removed, then `put` is appended.

    `put` takes the place of what has the same name. Neither can touch the framing
    (Content-Length, Transfer-Encoding) or hop-by-hop headers.
    """

    put: tuple[Header, ...] = ()
    remove: frozenset[bytes] = frozenset()
    target: bytes = b""
    """Replaces a request's target; empty keeps it."""
    names: frozenset[bytes] = field(init=False)
    """Everything that has to go."""
    block: bytes = field(init=False)
    """What comes instead."""

    def __post_init__(self) -> None:
        named = self.remove.union(name.lower() for name, _ in self.put)
        for name, value in self.put:
            if any(char in name + value for char in b"\r\n\0") or not name:
                raise ValueError(f"{name!r}: {value!r} is no header")
        if self.target and self.target.split() != [self.target]:
            raise ValueError(f"{self.target!r} is not a target")
        object.__setattr__(self, "names", named - FRAMING)
        kept = [(name, value) for name, value in self.put if name.lower() not in FRAMING]
        object.__setattr__(self, "block", b"".join(b"%b: %b\r\n" % header for header in kept))


FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection", b"upgrade"})
NO_EDITS = Edits()


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer. Content-Length, Date and Connection are added."""

    status: int
    headers: tuple[Header, ...] = ()
    body: bytes = b""


class Visit(Protocol):
    """A request that is under way, for who may end it."""

    @property
    def is_answered(self) -> bool:
        """Whether its answer has begun."""
        ...

    def cut(self, status: int, code: str, message: str, remediation: str) -> None:
        """End it at once, with this answer where none has begun."""
        ...


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where a request goes. May be kept and given again for later requests.

    `dial` gives a connected, non-blocking stream socket that then belongs to the front, or raises
    OSError, or PaddockError when where to connect to cannot be found out. It is cancelled when the
    client leaves or the connect deadline passes.

    Connections with the same `key` are taken to lead to the same place, for anyone who was sent
    there: it has to change when a sandbox is stopped and started, and to name the port.
    """

    key: Hashable
    dial: Callable[[], Awaitable[socket.socket]]
    request: Edits = NO_EDITS
    response: Edits = NO_EDITS
    activity: Callable[[], AbstractContextManager[object]] | None = None
    """Entered when the request is sent there, left when its answer is complete or, after an
    upgrade, when the connection has ended: as long as it is open somebody is at work."""
    staying: Callable[[Visit], AbstractContextManager[object]] | None = None
    """Entered and left as `activity` is, and given what ends the request's connection at once: the
    client was let in by something that may be taken away."""
    on_refused: Callable[[OSError | PaddockError], Awaitable[Reply]] | None = None
    """What to say when `dial` failed, such as which ports do listen; without it a plain 502."""
    tls: ssl.SSLContext | None = None
    """Speak TLS on the dialled connection."""
    server_name: str | None = None
    """Whose certificate TLS expects."""
    response_timeout_s: float | None = None
    """Instead of the setting of that name."""


Answer = Upstream | Reply
Resolve = Callable[[RequestHead], Answer | Awaitable[Answer]]
"""Decides where a request goes, for every single request: authorisation belongs in here.

An `async def` fits. A plain function that only sometimes gives an awaitable fits as well and saves
a task where the answer is known. It is cancelled when the client leaves. What it raises is logged
and answered with 500.
"""
