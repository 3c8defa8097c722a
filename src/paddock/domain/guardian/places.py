"""Paths as agents write them, and which of them a pattern is about."""

import posixpath
import re
from functools import lru_cache

SYSTEM = frozenset(
    "/ /bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /sbin /srv /sys /usr /var".split()
)
SCRATCH = ("/tmp/**", "/var/tmp/**", "/dev/**", "/proc/self/**")  # noqa: S108
"""Where anybody may write anything."""
_HOME = re.compile(r"^(?:~|\$HOME\b|\$\{HOME\})(?=/|$)")
_UNKNOWN = re.compile(r"[$`]")


def resolved(path: str, cwd: str, home: str) -> str | None:
    """An absolute path without detours; None where that shows only when it runs."""
    path = _HOME.sub(lambda _: home, path)
    if _UNKNOWN.search(path) or path.startswith("~"):
        return None
    joined = posixpath.normpath(posixpath.join(cwd, path))
    return f"/{joined.lstrip('/')}" if joined.startswith("/") else None


def matches(path: str, patterns: tuple[str, ...], cwd: str, home: str) -> bool:
    """Whether a resolved path is, or lies below, what one of the patterns names.

    `*`, `?` and `[…]` match within a part of a path, `**` any number of parts.
    """
    return bool(_compiled(patterns, cwd, home).fullmatch(path))


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...], cwd: str, home: str) -> re.Pattern[str]:
    """All of them as one: an agent may name thousands of paths in a command."""
    found = (resolved(pattern, cwd, home) for pattern in patterns)
    return re.compile("|".join(_spelt(each) for each in found if each is not None) or "(?!)")


def _spelt(pattern: str) -> str:
    parts = []
    for part in pattern.strip("/").split("/"):
        if part == "**":
            parts.append("(?:/[^/]+)*")
        elif part:
            parts.append("/" + _part(part))
    return f"(?s:{''.join(parts)}(?:/.*)?)"


def _part(part: str) -> str:
    found = []
    for piece in re.findall(r"\*+|\?|\[[^]/]+\]|.", part, re.DOTALL):
        if piece[0] == "*":
            found.append("[^/]*")
        elif piece == "?":
            found.append("[^/]")
        elif len(piece) > 1:
            found.append("[" + re.escape(piece[1:-1]).replace(r"\-", "-") + "]")
        else:
            found.append(re.escape(piece))
    return "".join(found)
