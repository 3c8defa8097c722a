"""Opening paths as root through root's own links only.

A link that a user planted must not lead root to files that the user may not use.
"""

from __future__ import annotations

import errno
import os
import stat

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # as in the kernel


def open_via_root_links(
    path: bytes, flags: int, mode: int = 0, *, dir_fd: int | None = None
) -> int:
    """As os.open. PermissionError at a link that belongs to another account than root.

    Every step holds its directory open, so a name that is swapped meanwhile leads nowhere else.
    Magic links of /proc are followed by their text, which stays inside the sandbox.
    """
    follows = not flags & os.O_NOFOLLOW and not flags & os.O_EXCL
    at = os.open(b"/" if path.startswith(b"/") or dir_fd is None else b".", _LOOK, dir_fd=dir_fd)
    parts, left = _parts(path) or [b"."], _MOST_LINKS
    try:
        while True:
            part = parts.pop()
            target = _link_target(part, at) if parts or follows else None
            if target is None and not parts:
                return os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=at)
            if target is None:
                at = _moved(at, part)
                continue
            if not left:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(path))
            left -= 1
            parts = parts + _parts(target) or [b"."]
            at = _moved(at, b"/") if target.startswith(b"/") else at
    finally:
        os.close(at)


def _parts(path: bytes) -> list[bytes]:
    """The names in a path, last first, as a stack of work wants them."""
    return [part for part in reversed(path.split(b"/")) if part not in (b"", b".")]


def _moved(at: int, name: bytes) -> int:
    inner = os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=at)
    os.close(at)
    return inner


def _link_target(name: bytes, at: int) -> bytes | None:
    """None where it is no link, or where nothing is."""
    try:
        fd = os.open(name, _LOOK, dir_fd=at)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISLNK(status.st_mode):
            return None
        if status.st_uid != 0:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fsdecode(name))
        return os.readlink(b"", dir_fd=fd)
    finally:
        os.close(fd)
