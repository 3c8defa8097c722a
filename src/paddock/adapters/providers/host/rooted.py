"""Files below a directory that strangers write to: the kernel keeps every path within it.

Whoever may write there can put a link in any place, at any moment. So no path is looked up by
name alone: `openat2` resolves it as if the directory were the root of the file system, and what is
done then is done to what was opened.
"""

import ctypes
import errno
import os
import posixpath
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SYS_OPENAT2 = 437
_RESOLVE_NO_XDEV = 0x01
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_IN_ROOT = 0x10
_ATTEMPTS = 32
"""A rename somewhere on the way makes the kernel ask to try again."""

_libc = ctypes.CDLL(None, use_errno=True)


def plain(path: str) -> str:
    """The path from the root on, with nothing in it that has to be resolved by name."""
    if "\0" in path:
        raise ValueError("a path cannot contain a NUL character")
    return posixpath.normpath(f"/{path.lstrip('/')}")


@contextmanager
def opened_root(directory: Path) -> Iterator[int]:
    root = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield root
    finally:
        os.close(root)


@contextmanager
def opened(root: int, path: str, flags: int) -> Iterator[int]:
    """What is at the path, by way of links that stay below the root."""
    descriptor = _openat2(root, plain(path), flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_parent(root: int, path: str) -> Iterator[tuple[int, str]]:
    """The directory that the path's last name is in, and that name."""
    parent, name = posixpath.split(plain(path))
    with opened(root, parent, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        yield descriptor, name or "."


def itself(descriptor: int) -> str:
    """A path to what is open, for calls that take no descriptor of this kind."""
    return f"/proc/self/fd/{descriptor}"


def _openat2(root: int, path: str, flags: int) -> int:
    how = struct.pack(
        "=QQQ", flags, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_XDEV
    )
    name = os.fsencode(path)
    for _ in range(_ATTEMPTS):
        found: int = _libc.syscall(_SYS_OPENAT2, root, name, how, len(how))
        if found >= 0:
            return found
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)
