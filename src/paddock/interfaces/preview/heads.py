"""What both directions have in common: collecting a head, and which headers stay behind."""

from itertools import product

END = b"\r\n\r\n"

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate te "
    b"upgrade http2-settings".split()
)
_FORWARDED = (
    b"forwarded x-real-ip x-forwarded-for x-forwarded-proto x-forwarded-host x-forwarded-port "
    b"x-forwarded-by x-forwarded-prefix x-forwarded-scheme x-forwarded-server x-forwarded-ssl"
).split()


def _spellings(name: bytes) -> set[bytes]:
    """WSGI and CGI take X_Forwarded_For for X-Forwarded-For, so it may not come through either."""
    parts = name.split(b"-")
    return {
        b"".join(part + mark for part, mark in zip(parts, (*marks, b""), strict=True))
        for marks in product((b"-", b"_"), repeat=len(parts) - 1)
    }


FORWARDED = frozenset(each for name in _FORWARDED for each in _spellings(name))
"""Written by the front alone."""

_ALWAYS_PASSED = frozenset(b"host content-length transfer-encoding".split())
_USUAL = frozenset(b"close keep-alive upgrade te http2-settings".split()) | {b""}


NONE: frozenset[bytes] = frozenset()
# What nearly every Connection header says, looked up instead of taken apart.
_COMMON = {
    spelling: frozenset({spelling.lower()})
    for word in (b"keep-alive", b"close", b"upgrade")
    for spelling in (word, word.capitalize(), word.title())
}


def tokens(value: bytes) -> frozenset[bytes]:
    """The words of a list such as Connection, in lower case."""
    found = _COMMON.get(value)
    if found is not None:
        return found
    return frozenset([word.strip() for word in value.lower().split(b",")])


def named_in(connection: frozenset[bytes]) -> frozenset[bytes]:
    """The headers a Connection header declares to be hop-by-hop, beyond the usual ones."""
    return NONE if connection <= _USUAL else connection - _USUAL - _ALWAYS_PASSED


class HeadBuffer:
    """Collects the bytes of a head, however they arrive, in time linear to their number."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = bytearray()
        """What there is so far; not to be kept."""

    def add(self, data: bytes) -> tuple[bytes, bytes] | None:
        """The head with its empty line and what came after, or None until it is complete."""
        buffered = self.held
        start = max(0, len(buffered) - 3)
        buffered += data
        end = buffered.find(END, start) + 4
        if end == 3:
            return None
        head, rest = bytes(buffered[:end]), bytes(buffered[end:])
        buffered.clear()
        return head, rest
