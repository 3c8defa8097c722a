"""Opening what a caller names, without ever opening what belongs to the guest itself.

Whose rights count is not decided here but in `rights`, by whoever acts on behalf of an account.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from . import syscalls
from .links import open_via_root_links
from .users import Account

_acting_for: ContextVar[Account | None] = ContextVar("acting_for", default=None)


@contextmanager
def acting_for(account: Account) -> Iterator[None]:
    """Inside, root acts for the account: only root's links are followed, new directories are the
    account's. There must be no `await` inside."""
    before = _acting_for.set(account)
    try:
        yield
    finally:
        _acting_for.reset(before)


def open_path(
    path: bytes, flags: int, mode: int = 0, *, dir_fd: int | None = None, resolve: int = 0
) -> int:
    """As os.open, but magic links of /proc lead nowhere and the guest's own entry is closed.

    In a joined guest /proc/self/exe, fd, maps and mem show the host.
    """
    if _acting_for.get() is None:
        fd = syscalls.open_without_magic(path, flags, mode, dir_fd=dir_fd, resolve=resolve)
    else:
        fd = open_via_root_links(path, flags, mode, dir_fd=dir_fd)
    if _is_ours(fd):
        os.close(fd)
        raise PermissionError(errno.EACCES, "belongs to the guest itself", os.fsdecode(path))
    return fd


@contextmanager
def opened(path: bytes, flags: int, *, dir_fd: int | None = None) -> Iterator[int]:
    fd = open_path(path, flags, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def parent_of(path: bytes) -> Iterator[tuple[int, bytes]]:
    """The directory that holds a path, opened, and the name in it; the name is not followed."""
    fd, name = open_parent(path)
    try:
        yield fd, name
    finally:
        os.close(fd)


def open_parent(path: bytes) -> tuple[int, bytes]:
    directory, name = split(path)
    return open_path(directory, os.O_PATH | os.O_DIRECTORY), name


def split(path: bytes) -> tuple[bytes, bytes]:
    """Directory and name, also where the last part is `.`, `..` or nothing; / is (/, .)."""
    head, name = os.path.split(path.rstrip(b"/") or b"/")
    if name in (b"", b".", b".."):
        with opened(path, os.O_PATH | os.O_DIRECTORY) as fd:
            head, name = os.path.split(real_path(fd))
    return head or b"/", name or b"."


def real_path(fd: int) -> bytes:
    return os.readlink(b"/proc/self/fd/%d" % fd)


def make_parents(path: bytes) -> None:
    """All directories above a path; those that are missing are made with mode 0755."""
    missing = []
    directory = os.path.dirname(path.rstrip(b"/")) or b"/"
    while True:
        try:
            fd = open_path(directory, os.O_PATH | os.O_DIRECTORY)
            break
        except FileNotFoundError:
            directory, name = os.path.split(directory.rstrip(b"/"))
            missing.append(name)
            directory = directory or b"/"
    try:
        for name in reversed(missing):
            inner = make_directory(fd, name)
            os.close(fd)
            fd = inner
    finally:
        os.close(fd)


def make_directory(parent: int, name: bytes) -> int:
    """Made and opened."""
    os.mkdir(name, 0o755, dir_fd=parent)
    fd = open_path(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    if (owner := _acting_for.get()) is not None:
        os.chown(b"/proc/self/fd/%d" % fd, owner.uid, owner.gid)
    return fd


def _is_ours(fd: int) -> bool:
    if syscalls.file_system(fd) != syscalls.PROCFS:
        return False
    # Each of our threads has an entry of its own, and shows there what the process's own shows.
    return any(
        os.path.isdir(b"/proc/self/task/" + part)
        for part in real_path(fd).split(b"/")
        if part.isdigit()
    )
