"""Which protocol a client speaks, told by the first bytes it sends."""

import re
from enum import Enum

LONGEST_LINE = 8192
_BLANK = rb"[ \t\v\f\r]"
_METHOD = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_REQUEST_LINE = re.compile(_BLANK + rb"HTTP/", re.I)
_WITHOUT_VERSION = re.compile(_METHOD + rb"+" + _BLANK + rb"+(/|https?:)", re.I)
"""As before HTTP/1.0, or with a version that is still to come."""
_NO_END_YET = re.compile(_METHOD + rb"*(" + _BLANK + rb"|\Z)")
"""What a line that is longer than is read here would begin with, were it a request's."""
_TLS_RECORDS = range(0x14, 0x19)
"""ChangeCipherSpec to heartbeat. TLS stacks differ in which record may come first."""
_SSL2, _SSL2_HELLO = 0x80, 1
"""OpenSSL still accepts an SSL 2 ClientHello: two bytes of length, then its type."""
_NOT_TEXT = re.compile(rb"[^\t\v\f\r\n\x20-\xff]")


class Spoken(Enum):
    """What is to be done with what comes."""

    UNKNOWN_YET = 0
    TLS = 1
    HTTP = 2
    SOMETHING_ELSE = 3
    SSH = 4


def spoken(beginning: bytes) -> Spoken:
    """Anything that some server might accept as TLS or HTTP counts as such, and is then checked."""
    is_tls = _may_be_tls(beginning)
    if is_tls is not False:
        return Spoken.TLS if is_tls else Spoken.UNKNOWN_YET
    text = beginning.lstrip(b"\r\n\t\v\f ")
    line, newline, _ = text[:LONGEST_LINE].partition(b"\n")
    if _REQUEST_LINE.search(line):
        return Spoken.HTTP
    is_binary = _NOT_TEXT.search(line) is not None
    if not newline and not is_binary and len(beginning) < LONGEST_LINE:
        return Spoken.UNKNOWN_YET
    is_endless = not newline and not is_binary and _NO_END_YET.match(line)
    if is_endless or _WITHOUT_VERSION.match(line):
        return Spoken.HTTP
    return Spoken.SSH if beginning.startswith(b"SSH-") else Spoken.SOMETHING_ELSE


def _may_be_tls(beginning: bytes) -> bool | None:
    """Whether it may be TLS; None while more is needed."""
    first = beginning[0] if beginning else 0
    if not first & _SSL2:
        return first in _TLS_RECORDS
    return beginning[2] == _SSL2_HELLO if len(beginning) > 2 else None
