"""Paths of requests, and patterns for them: `*` is within a segment, `**` is anything."""

import re
from functools import lru_cache

_PLAIN = re.compile(r"/[A-Za-z0-9._~!$&'()+,=:@%/*-]*")
_SPELT = re.compile(r"/(?:[!-$&-~]|%[0-9A-Fa-f]{2})*")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
_TWO_WAYS = re.compile(r"[\\#;]|%(?:[01][0-9A-F]|23|25|2F|3B|3F|5C|7F)")
"""What is a mark to one server and a letter to another: fragments, parameters of a segment, and
whatever becomes one of those, a slash or an escape once somebody on the way has unescaped it."""
_TRIMMED = (".", "%20")
"""At the end of a segment: dot segments, and what servers on Windows leave out."""


def checked(pattern: str) -> str | None:
    """The pattern in the form that paths are compared in; None for one that could not fit any."""
    if not _PLAIN.fullmatch(pattern):
        return None
    return canonical(pattern)


def canonical(path: str) -> str | None:
    """A path as every server reads it; None where they might differ.

    What is escaped without need is unescaped. Dot segments, escaped or not, doubled slashes,
    backslashes, escaped slashes, fragments and parameters (`/a;x`) are what one server resolves or
    leaves out and another takes as they are.
    """
    path = path.partition("?")[0]
    if path == "*":
        return path
    plain = _ESCAPE.sub(_unescaped, path)
    segments = plain.split("/")
    if not _SPELT.fullmatch(path) or _TWO_WAYS.search(plain) or not _is_text(plain):
        return None
    if "" in segments[1:-1] or any(each.endswith(_TRIMMED) for each in segments):
        return None
    return plain


def _is_text(plain: str) -> bool:
    """Not a slash or a dot in more bytes than it needs, which some unescape all the same."""
    try:
        _ESCAPE.sub(lambda found: chr(int(found[1], 16)), plain).encode("latin-1").decode()
    except UnicodeDecodeError:
        return False
    return True


def _unescaped(found: re.Match[str]) -> str:
    character = chr(int(found[1], 16))
    return character if _UNRESERVED.fullmatch(character) else found[0].upper()


def fits(pattern: str, path: str, *, ambiguous: bool) -> bool:
    """`ambiguous` is the answer for a path that servers read differently."""
    plain = canonical(path)
    if plain is None:
        return ambiguous
    return _compiled(pattern).fullmatch(plain) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*)", pattern)
    meaning = {"**": ".*", "*": "[^/]*"}
    return re.compile("".join(meaning.get(part, re.escape(part)) for part in parts), re.S)
