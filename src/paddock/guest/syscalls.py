"""System calls that the standard library does not offer."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager

_libc = ctypes.PyDLL(None, use_errno=True)

_SYS_OPENAT2 = 437  # on every architecture

_AT_FDCWD = -100
_TMPFILE = os.O_TMPFILE & ~os.O_DIRECTORY
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36

PROCFS = 0x9FA0
SYSFS = 0x62656572

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04

IN_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _checked(result: int, path: bytes | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        if path is None:
            raise OSError(number, os.strerror(number))
        raise OSError(number, os.strerror(number), os.fsdecode(path))
    return result


def become_subreaper() -> bool:
    """False where the kernel does not know it, as gVisor's of 2022."""
    return bool(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def forbid_inspection() -> None:
    """No process without the right to trace this one can read its memory, files or environment."""
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def open_without_magic(
    path: bytes, flags: int, mode: int = 0, *, dir_fd: int | None = None, resolve: int = 0
) -> int:
    """Open, but through no magic link of /proc (and none at all with RESOLVE_NO_SYMLINKS)."""
    flags |= os.O_CLOEXEC
    if _has_openat2():
        creates = flags & (os.O_CREAT | _TMPFILE)
        return _openat2(path, flags, mode if creates else 0, dir_fd, resolve)
    if resolve & RESOLVE_NO_SYMLINKS:
        flags |= os.O_NOFOLLOW
    return os.open(path, flags, mode, dir_fd=dir_fd)


@functools.cache
def _has_openat2() -> bool:
    """Not on a kernel before 5.6, in gVisor, or under a seccomp profile older than the call.

    Found out once and on its own: to fall back after a refused open would be a way around it.
    """
    try:
        os.close(_openat2(b"/", os.O_PATH | os.O_CLOEXEC, 0, None, 0))
    except OSError as error:
        return error.errno not in (errno.ENOSYS, errno.EPERM)
    return True


def _openat2(path: bytes, flags: int, mode: int, dir_fd: int | None, resolve: int) -> int:
    how = _OpenHow(flags, mode, RESOLVE_NO_MAGICLINKS | resolve)
    at = _AT_FDCWD if dir_fd is None else dir_fd
    result = _libc.syscall(_SYS_OPENAT2, at, path, ctypes.byref(how), ctypes.sizeof(how))
    return _checked(int(result), path)


def file_system(fd: int) -> int:
    """The magic number of the file system that holds an open file."""
    buffer = ctypes.create_string_buffer(256)  # larger than struct statfs anywhere
    _checked(_libc.fstatfs(fd, buffer))
    return int.from_bytes(buffer.raw[:4], "little")


def inotify_init() -> int:
    return _checked(_libc.inotify_init1(IN_CLOEXEC_NONBLOCK))


def inotify_add_watch(fd: int, path: bytes, mask: int) -> int:
    return _checked(_libc.inotify_add_watch(fd, path, ctypes.c_uint32(mask)), path)


def inotify_rm_watch(fd: int, watch: int) -> None:
    _libc.inotify_rm_watch(fd, watch)


@contextmanager
def files_as(owner: os.stat_result) -> Iterator[None]:
    """Look at files as their owner does. Does nothing for those that may not become others."""
    _libc.setfsgid(owner.st_gid)
    _libc.setfsuid(owner.st_uid)
    try:
        yield
    finally:
        _libc.setfsuid(os.geteuid())
        _libc.setfsgid(os.getegid())
