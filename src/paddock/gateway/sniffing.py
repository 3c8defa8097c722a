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
_NOT_TEXT = re.compile(rb"[^\t\v\f\r\n\x20-\xff]")


class Spoken(Enum):
    """What is to be done with what comes."""

    UNKNOWN_YET = 0
    TLS = 1
    HTTP = 2
    SOMETHING_ELSE = 3


def spoken(beginning: bytes) -> Spoken:
    """Anything that some server might take for HTTP is HTTP, to be read strictly then."""
    if beginning[:1] == b"\x16":
        return Spoken.TLS
    text = beginning.lstrip(b"\r\n\t\v\f ")
    line, newline, _ = text[:LONGEST_LINE].partition(b"\n")
    if _REQUEST_LINE.search(line):
        return Spoken.HTTP
    is_binary = _NOT_TEXT.search(line) is not None
    if not newline and not is_binary and len(beginning) < LONGEST_LINE:
        return Spoken.UNKNOWN_YET
    is_endless = not newline and not is_binary and _NO_END_YET.match(line)
    return Spoken.HTTP if is_endless or _WITHOUT_VERSION.match(line) else Spoken.SOMETHING_ELSE
