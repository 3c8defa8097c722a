"""One file being uploaded, in a way that keeps what was there if the upload breaks off."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from contextlib import suppress

from . import paths, rights, syscalls
from .connect import Message
from .entries import METADATA_PREFIX
from .environment import decode, encode
from .errors import invalid
from .users import Account

_IN_MEMORY = 1 << 20
_COPY_AT_ONCE = 8 << 20
_MODE = 0o644
_FICLONE = 0x40049409


class Upload:
    """Takes a file's data and puts it in place.

    A watcher of the directory shall see just CREATE, CHMOD and WRITE, so there is no renaming of
    a temporary file. Up to 1 MiB is held back until it is complete. More goes straight into a new
    file, which is removed again if the upload breaks off; for an existing file it goes to a
    nameless one beside it first, so that a broken upload leaves the old content alone; then it
    changes places with it where the file system can, or is copied once the room for it is there.
    Only where the file system has no nameless files is the old file truncated at once.

    All of it happens with the account's rights, so what is new is the account's, and an existing
    file stays whose it is.
    """

    def __init__(self, path: bytes, account: Account, metadata: dict[str, str]) -> None:
        self._path = path
        self._account = account
        self._metadata = metadata
        self._held = bytearray()
        self._target = -1
        self._spool = -1
        self._created = False

    def write(self, data: bytes) -> None:
        if self._target < 0 and len(self._held) + len(data) <= _IN_MEMORY:
            self._held += data
            return
        if self._target < 0:
            with rights.of(self._account):
                self._open_for_much()
            data = bytes(self._held) + data
            self._held.clear()
        _write_all(self._spool if self._spool >= 0 else self._target, data)

    async def finish(self) -> Message:
        """Put it in place; what the caller is told of it."""
        if self._spool >= 0:
            await self._copy_spool()
        with rights.of(self._account):
            if self._target < 0:
                self._open()
                if not self._created:
                    syscalls.reserve(self._target, len(self._held))
                    os.ftruncate(self._target, 0)
                _write_all(self._target, self._held)
            self._set_metadata()
        self.close()
        said: Message = {
            "path": decode(self._path),
            "name": decode(os.path.basename(self._path)),
            "type": "file",
        }
        if self._metadata:
            said["metadata"] = self._metadata
        return said

    def abandon(self) -> None:
        """The upload broke off: leave no new file."""
        if self._created:
            self._created = False
            with suppress(OSError), rights.of(self._account):
                with paths.parent_of(self._path) as (directory, name):
                    os.unlink(name, dir_fd=directory)
        self.close()

    def close(self) -> None:
        for fd in (self._target, self._spool):
            if fd >= 0:
                os.close(fd)
        self._target = self._spool = -1
        self._created = False

    def _open(self) -> None:
        paths.make_parents(self._path)
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
        try:
            self._target = paths.open_path(self._path, flags | os.O_CREAT | os.O_EXCL, _MODE)
            self._created = True
        except FileExistsError:
            self._target = self._open_existing(flags)
        status = os.fstat(self._target)
        if not stat.S_ISREG(status.st_mode):
            raise invalid(f"{decode(self._path)} is not a regular file")
        if status.st_uid == self._account.uid:
            # envd chowns what it is given, and clients wait for the event that this makes.
            with suppress(OSError):
                os.fchown(self._target, status.st_uid, status.st_gid)

    def _open_for_much(self) -> None:
        self._open()
        if not self._created:
            self._spool = _open_nameless(self._path)
            if self._spool < 0:
                os.ftruncate(self._target, 0)

    def _open_existing(self, flags: int) -> int:
        try:
            return paths.open_path(self._path, flags | os.O_CREAT, _MODE)
        except IsADirectoryError:
            raise invalid(f"path is a directory: {decode(self._path)}") from None
        except OSError as error:
            if error.errno == errno.ENXIO:  # a pipe or a socket that nobody reads
                raise invalid(f"{decode(self._path)} is not a regular file") from None
            raise

    async def _copy_spool(self) -> None:
        size = os.fstat(self._spool).st_size
        if self._is_cloned(size):
            return
        os.lseek(self._spool, 0, os.SEEK_SET)
        syscalls.reserve(self._target, size)
        with rights.of(self._account):  # as root it would leave a set-user-ID bit in place
            os.ftruncate(self._target, 0)
        while size > 0:
            size -= os.sendfile(self._target, self._spool, None, min(size, _COPY_AT_ONCE))
            await asyncio.sleep(0)

    def _is_cloned(self, size: int) -> bool:
        """The content changes hands in one step and takes no second place on the disk."""
        try:
            fcntl.ioctl(self._target, _FICLONE, self._spool)
        except OSError:
            return False
        with rights.of(self._account):
            os.ftruncate(self._target, size)
        return True

    def _set_metadata(self) -> None:
        """Exactly these; but no touch at all where there is nothing to change."""
        held = b"/proc/self/fd/%d" % self._target
        wanted = {METADATA_PREFIX + name: value for name, value in self._metadata.items()}
        present = () if self._created else _names(self._target)
        for name in present:
            if name not in wanted:
                os.removexattr(held, name)
        for name, value in wanted.items():
            os.setxattr(held, name, encode(value))


def _names(fd: int) -> list[str]:
    return [name for name in os.listxattr(fd) if name.startswith(METADATA_PREFIX)]


def _open_nameless(path: bytes) -> int:
    try:
        directory = os.path.dirname(path) or b"/"
        return paths.open_path(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:
        return -1


def _write_all(fd: int, data: bytes | bytearray) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
