"""System calls that the standard library does not offer."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct
import time
from typing import Any

_libc = ctypes.PyDLL(None, use_errno=True)

_NAMES = (
    "setsid dup3 ioctl rt_sigaction rt_sigprocmask prlimit64 prctl setgroups setresgid setfsgid "
    "setfsuid setresuid chdir close_range execve futex"
).split()
_X86_64 = (112, 292, 16, 13, 14, 302, 157, 116, 119, 123, 122, 117, 80, 436, 59, 202)
_GENERIC = (157, 24, 29, 134, 135, 261, 167, 159, 149, 152, 151, 147, 49, 436, 221, 98)
NUMBER = dict(zip(_NAMES, _X86_64 if os.uname().machine == "x86_64" else _GENERIC))
_SYS_OPENAT2 = 437  # on every architecture

_AT_FDCWD = -100
_TMPFILE = os.O_TMPFILE & ~os.O_DIRECTORY
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

_FALLOC_FL_KEEP_SIZE = 1

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


def call(name: str, *arguments: int | ctypes.Array[Any] | None) -> int:
    """The system call itself: for this thread alone, where the C library would do it for all."""
    return int(_libc.syscall(NUMBER[name], *arguments))


def checked_call(name: str, *arguments: int | ctypes.Array[Any] | None) -> int:
    return _checked(call(name, *arguments))


@functools.cache
def has_setfsuid() -> bool:
    """Asked with an id that is none, which changes nothing; gVisor does not know the call."""
    return call("setfsuid", -1) >= 0


def become_subreaper() -> bool:
    """False where the kernel does not know it.

    gVisor's of 2022 does not, though it lets its first process say so: but it cannot be asked.
    """
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    is_one = ctypes.c_int(0)
    _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(is_one), 0, 0, 0)
    return is_one.value == 1


def reserve(fd: int, size: int) -> None:
    """Raise when the file system has no room for so much; where it cannot say, nothing happens."""
    if size == 0:
        return
    zero, length = ctypes.c_long(0), ctypes.c_long(size)
    if _libc.fallocate(fd, _FALLOC_FL_KEEP_SIZE, zero, length) != 0:
        number = ctypes.get_errno()
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(number, os.strerror(number))


def forbid_inspection() -> None:
    """No process without the right to trace this one can read its memory, files or environment."""
    _checked(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))


@functools.cache
def changed_ids_allow_inspection() -> bool:
    """With fs.suid_dumpable 1 forbid_inspection() holds only until some id changes.

    The ids of a child that shares the memory count too.
    """
    try:
        with open("/proc/sys/fs/suid_dumpable", "rb") as file:
            return file.read().strip() == b"1"
    except OSError:
        return False


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


def timer_create() -> int:
    """A timer to read from: that waits until it has run out."""
    return _checked(_libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC))


def timer_set(fd: int, seconds: float) -> None:
    """Once, after so long; 0 clears it, also if it has run out and nobody has read that."""
    once = struct.pack("4q", 0, 0, int(seconds), int(seconds % 1 * 1e9))
    _checked(_libc.timerfd_settime(fd, 0, once, None))


def inotify_init() -> int:
    return _checked(_libc.inotify_init1(IN_CLOEXEC_NONBLOCK))


def inotify_add_watch(fd: int, path: bytes, mask: int) -> int:
    return _checked(_libc.inotify_add_watch(fd, path, ctypes.c_uint32(mask)), path)


def inotify_rm_watch(fd: int, watch: int) -> None:
    _libc.inotify_rm_watch(fd, watch)
