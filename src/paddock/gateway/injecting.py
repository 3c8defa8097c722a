"""Credentials put into requests: the head as it is sent, from the head as it came."""

import base64
import binascii
import re
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from paddock.domain.broker.binding import Way
from paddock.domain.egress import paths
from paddock.gateway.protocol import Credential

_AUTHORIZATION = b"authorization"
_ENDS_LINE = re.compile(r"[\r\n\0]")
_OF_GIT = re.compile(
    r"/.+/(info/refs|git-upload-pack|git-receive-pack|info/lfs/("
    r"objects/batch|objects/[0-9a-f]{64}(/[0-9]+)?|verify|locks(/verify|/[^/]+/unlock)?))"
)
"""Where a repository is read and written, by git and for its large files."""

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(slots=True)
class Size:
    """Of a body: as it is announced, or as much as has come of one that is not."""

    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request, as far as credentials go into it."""

    method: str
    path: bytes
    headers: Headers
    size: Size = field(default_factory=Size)

    def values(self, name: bytes) -> list[bytes]:
        return [value for each, value in self.headers if each.lower() == name]

    def without(self, *names: bytes) -> "Head":
        kept = tuple(each for each in self.headers if each[0].lower() not in names)
        return replace(self, headers=kept)

    def plus(self, name: bytes, value: bytes) -> "Head":
        return replace(self, headers=(*self.headers, (name, value)))


class Lacking(Exception):
    """A request needs a credential that has no value now."""

    def __init__(self, credential: Credential) -> None:
        super().__init__(credential.secret)
        self.credential = credential


@dataclass(frozen=True, slots=True)
class Injected:
    """A head with credentials in it, and which those are."""

    head: Head
    used: tuple[Credential, ...]


def inject(head: Head, credentials: Sequence[Credential], now: float) -> Injected:
    """Lacking for one that the request needs, but whose value is gone."""
    used = []
    for each in credentials:
        made = _put(head, each)
        if made == head:
            continue
        each = whole(each)
        if not each.value or (each.expires_at is not None and each.expires_at <= now):
            raise Lacking(each)
        head = made
        used.append(each)
    return Injected(head, tuple(used))


def whole(credential: Credential) -> Credential:
    """One whose value would end the line that it is put into has none."""
    if not _ENDS_LINE.search(credential.value):
        return credential
    why = f"the secret {credential.secret} is of more than one line, and would split the request"
    return msgspec.structs.replace(credential, value="", lacks=credential.lacks or why)


def guarded(head: Head) -> Head:
    """What keeps answers readable here: neither compressed, nor in parts that a client chooses."""
    names = (b"accept-encoding", b"range", b"if-range", b"sec-websocket-extensions")
    return head.without(*names).plus(b"Accept-Encoding", b"identity")


def _put(head: Head, credential: Credential) -> Head:
    return _WAYS[Way(credential.way)](head, credential)


def _header(head: Head, credential: Credential) -> Head:
    name = credential.header.lower().encode()
    if credential.own:
        head = head.without(name)
    if not head.values(name):
        shown = credential.format.replace("{}", credential.value or credential.placeholder)
        return head.plus(credential.header.encode(), shown.encode())
    return _exchanged(head, credential, lambda each: each == name)


def _basic(head: Head, credential: Credential) -> Head:
    if not head.values(_AUTHORIZATION):
        value = credential.value or credential.placeholder
        text = base64.b64encode(f"{credential.user}:{value}".encode())
        return head.plus(b"Authorization", b"Basic " + text)
    return _exchanged(head, credential, lambda each: each == _AUTHORIZATION)


def _registry(head: Head, credential: Credential) -> Head:
    if credential.user or head.values(_AUTHORIZATION):
        return _basic(head, credential)
    value = credential.value or credential.placeholder
    return head.plus(b"Authorization", b"Bearer " + value.encode())


def _git(head: Head, credential: Credential) -> Head:
    """git asks its helper once it was told that it has to; nothing is added of our own."""
    path = paths.canonical(head.path.decode("latin-1"))
    if path is None or not _OF_GIT.fullmatch(path):
        return head
    headers = tuple(
        (name, _in_basic(value, credential) if name.lower() == _AUTHORIZATION else value)
        for name, value in head.headers
    )
    return replace(head, headers=headers)


def _query(head: Head, credential: Credential) -> Head:
    path, mark, query = head.path.partition(b"?")
    name = credential.parameter.encode()
    parts = query.split(b"&") if mark else []
    if any(part.partition(b"=")[0] == name for part in parts):
        return replace(head, path=_in_query(head.path, credential))
    value = urllib.parse.quote(credential.value or credential.placeholder, safe="").encode()
    return replace(head, path=path + b"?" + b"&".join([*parts, name + b"=" + value]))


def _anywhere(head: Head, credential: Credential) -> Head:
    made = _exchanged(head, credential, lambda _name: True)
    return replace(made, path=_in_query(head.path, credential))


def _exchanged(head: Head, credential: Credential, fits: Callable[[bytes], bool]) -> Head:
    """The placeholder is exchanged where it stands in those headers, also in a password."""
    headers = tuple(
        (name, _in_header(name.lower(), value, credential) if fits(name.lower()) else value)
        for name, value in head.headers
    )
    return replace(head, headers=headers)


def _in_header(name: bytes, text: bytes, credential: Credential) -> bytes:
    shown, value = credential.placeholder.encode(), _value(credential)
    if shown in text:
        return text.replace(shown, value)
    return _in_basic(text, credential) if name == _AUTHORIZATION else text


def _in_basic(text: bytes, credential: Credential) -> bytes:
    """A password, as a program sends it."""
    shown, value = credential.placeholder.encode(), _value(credential)
    scheme, _, encoded = text.partition(b" ")
    if scheme.lower() != b"basic":
        return text
    try:
        plain = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return text
    if shown not in plain:
        return text
    return b"Basic " + base64.b64encode(plain.replace(shown, value))


def _in_query(path: bytes, credential: Credential) -> bytes:
    before, mark, query = path.partition(b"?")
    value = urllib.parse.quote(_value(credential), safe="").encode()
    return (
        before + mark + re.sub(re.escape(credential.placeholder.encode()), lambda _: value, query)
    )


def _value(credential: Credential) -> bytes:
    """Without a value anything that differs from the placeholder: that it is needed is found."""
    return credential.value.encode() or b"\0"


_WAYS: dict[Way, Callable[[Head, Credential], Head]] = {
    Way.HEADER: _header,
    Way.BASIC: _basic,
    Way.GIT: _git,
    Way.QUERY: _query,
    Way.REGISTRY: _registry,
    Way.PLACEHOLDER: _anywhere,
}
