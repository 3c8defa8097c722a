"""Paths of requests, and patterns for them: `*` is within a segment, `**` is anything."""

import re
from functools import lru_cache

_PLAIN = re.compile(r"/[A-Za-z0-9._~!$&'()+,;=:@%/*-]*")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")


def checked(pattern: str) -> str | None:
    """The pattern in the form that paths are compared in; None for one that could not fit any."""
    if not _PLAIN.fullmatch(pattern):
        return None
    return canonical(pattern)


def canonical(path: str) -> str | None:
    """A path as every server reads it; None where they might differ.

    What is escaped without need is unescaped. Dot segments, escaped or not, doubled slashes,
    backslashes and escaped slashes are what one server resolves and another takes as they are.
    """
    path = path.partition("?")[0].partition("#")[0]
    if path == "*":
        return path
    plain = _ESCAPE.sub(_unescaped, path)
    segments = plain.split("/")
    if not path.startswith("/") or "" in segments[1:-1] or {".", ".."} & set(segments):
        return None
    if "\\" in plain or any(each in plain for each in ("%2F", "%5C", "%00", "%25")):
        return None
    return plain


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
