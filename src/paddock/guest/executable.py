"""Finding the file that a command's name stands for, and refusing what must not be started."""

from __future__ import annotations

import errno
import os
import stat

from . import syscalls
from .environment import decode
from .errors import GuestError, invalid, no_program, no_such_program

_MAX_SCRIPT_LINE = 256
_MOST_NESTED = 5  # scripts whose interpreters are scripts; the kernel takes no more either


def find(name: bytes, path: bytes, cwd: bytes) -> bytes:
    """The file that a name leads to, given the command's own PATH and working directory."""
    directory = _open_cwd(cwd)
    try:
        if b"/" in name:
            return _checked(name, directory)
        refusal = None
        for part in path.split(b":"):
            try:
                return _checked(os.path.join(part or b".", name), directory)
            except GuestError as error:
                refusal = refusal or (error if error.code != "not_found" else None)
        raise refusal or no_such_program(decode(name))
    except GuestError as error:
        if error.code == "not_found":
            raise no_such_program(decode(name)) from None
        raise error if error.exit_code else no_program(error.message) from None
    finally:
        os.close(directory)


def _open_cwd(cwd: bytes) -> int:
    try:
        return syscalls.open_without_magic(cwd, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        reason = f"cannot be entered: {error.strerror}"
        if error.errno == errno.ENOENT:
            reason = "does not exist"
        elif error.errno == errno.ENOTDIR:
            reason = "is not a directory"
        raise invalid(f"working directory {decode(cwd)} {reason}") from None


def _checked(path: bytes, cwd: int, nested: int = 0) -> bytes:
    """The path, if it can be executed and no magic link is on the way to it.

    In a joined guest /proc/self/exe is a program of the host: neither it nor a script that names
    it as its interpreter may ever be started.
    """
    try:
        fd = _open(path, cwd)
    except OSError as error:
        raise _not_opened(error, path) from None
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode) or not mode & 0o111:
            raise no_program(f"{decode(path)} is not executable")
        head = _read_head(fd)
    finally:
        os.close(fd)
    interpreter = head[2:].split(b"\n", 1)[0].split() if head.startswith(b"#!") else ()
    if interpreter and nested < _MOST_NESTED:
        try:
            _checked(interpreter[0], cwd, nested + 1)
        except GuestError as error:
            if error.code == "permission_denied":
                raise
    return path


def _open(path: bytes, cwd: int) -> int:
    try:
        return syscalls.open_without_magic(path, os.O_RDONLY | os.O_NONBLOCK, dir_fd=cwd)
    except PermissionError:  # a program may be executable and yet not readable
        return syscalls.open_without_magic(path, os.O_PATH, dir_fd=cwd)


def _not_opened(error: OSError, path: bytes) -> GuestError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return GuestError("not_found", decode(path))
    if error.errno == errno.ELOOP:
        reason = f"{decode(path)} leads through a magic link of /proc, or in a circle"
        return GuestError("permission_denied", reason)
    return no_program(f"cannot execute {decode(path)}: {error.strerror}")


def _read_head(fd: int) -> bytes:
    try:
        return os.pread(fd, _MAX_SCRIPT_LINE, 0)
    except OSError:
        return b""
