"""Which sandbox and port a request is for: by its host name, or by E2B's routing headers."""

import re
from collections import Counter
from dataclasses import dataclass
from urllib.parse import parse_qsl

from paddock.domain.ids import ULID
from paddock.interfaces.e2b.ids import meant
from paddock.interfaces.preview import RequestHead, parse_preview_host

GUEST_PORT = 49983
_LABEL = re.compile(rf"([1-9][0-9]{{0,4}})-(sbx{ULID})")
_NUMBER = re.compile(rb"[0-9]{1,5}")
_EXPIRES, _LONGEST_TIME = "signature_expiration", 15
_ID, _PORT = b"e2b-sandbox-id", b"e2b-sandbox-port"


@dataclass(frozen=True, slots=True)
class Address:
    """A port of a sandbox."""

    sandbox_id: str
    port: int

    @property
    def is_port(self) -> bool:
        return 0 < self.port < 1 << 16


@dataclass(frozen=True, slots=True)
class FileUrl:
    """A signed address of a file, which is all there is to say whose it is."""

    path: str
    user: str
    signature: str
    expiration: str


def address_of(head: RequestHead, domain: str) -> Address | None:
    """A host name says more than headers do; a preview's host is never one of these."""
    label, _, parent = head.host.partition(".")
    if parent == domain.lower():
        found = _LABEL.fullmatch(label)
        return Address(meant(found[2]), int(found[1])) if found else None
    named = head.get(_ID)
    if named is None or parse_preview_host(head.host, domain) is not None:
        return None
    port = head.get(_PORT) or str(GUEST_PORT).encode()
    number = int(port) if _NUMBER.fullmatch(port) else 0
    return Address(meant(named.decode("latin-1")), number)


def file_url_of(head: RequestHead) -> FileUrl | None:
    if head.path != b"/files" or "signature=" not in _query(head):
        return None
    given = dict(_fields(head))
    return FileUrl(
        given.get("path", ""),
        given.get("username", ""),
        given.get("signature", ""),
        given.get(_EXPIRES, ""),
    )


def unclear(head: RequestHead) -> str:
    """Why the query could mean one thing here and another to the guest; empty when it cannot. What
    is checked here is read again there, by other code."""
    if not _query(head).isascii():
        return "the query has characters that are not percent-encoded"
    if any(name == _EXPIRES and len(value) > _LONGEST_TIME for name, value in _fields(head)):
        return f"{_EXPIRES} is no time in seconds"
    times = Counter(name for name, _ in _fields(head))
    repeated = next((name for name, count in times.items() if count > 1), None)
    return "" if repeated is None else f"the query has {repeated[:80]!r} more than once"


def _query(head: RequestHead) -> str:
    return head.target.partition(b"?")[2].decode("latin-1")


def _fields(head: RequestHead) -> list[tuple[str, str]]:
    return parse_qsl(
        _query(head), keep_blank_values=True, encoding="utf-8", errors="surrogateescape"
    )
