"""One file being uploaded, in a way that keeps what was there if the upload breaks off."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Callable

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
    a temporary file. Up to 1 MiB is held back until it is complete. More goes to a nameless file,
    which nobody sees and which is gone with the guest, whatever ends it. When it is complete it
    gets its name; where there is a file already, that keeps its identity and takes the content
    over, at once where the file system can, or as a copy once the room for it is there.
    Only where the file system has no nameless files does it go straight into a new file, which is
    removed again if the upload breaks off, or into the old one.

    All of it happens with the account's rights, so what is new is the account's, and an existing
    file stays whose it is. Where these do not suffice and root acts for the account, the file is
    the account's afterwards.
    """

    def __init__(self, path: bytes, accounts: Sequence[Account], metadata: dict[str, str]) -> None:
        self._path = path
        self._accounts = accounts
        self._account = accounts[0]
        self._metadata = metadata
        self._held = bytearray()
        self._target = -1
        self._spool = -1
        self._created = False

    def write(self, data: bytes) -> None:
        is_open = self._target >= 0 or self._spool >= 0
        if not is_open and len(self._held) + len(data) <= _IN_MEMORY:
            self._held += data
            return
        if not is_open:
            self._attempt(self._open_for_much)
            data = bytes(self._held) + data
            self._held.clear()
        _write_all(self._spool if self._spool >= 0 else self._target, data)

    async def finish(self) -> Message:
        """Put it in place; what the caller is told of it."""
        if self._spool >= 0:
            await self._place_spool()
        if self._target < 0:
            self._attempt(self._write_held)
        with rights.of(self._account):
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

    def _attempt(self, act: Callable[[], None]) -> None:
        """Open with the rights of the first account that may. Later calls use the same account."""

        def act_as(account: Account) -> None:
            self._account = account
            act()

        rights.attempt(self._accounts, act_as)

    def _write_held(self) -> None:
        self._open()
        if not self._created:
            syscalls.reserve(self._target, len(self._held))
            os.ftruncate(self._target, 0)
        _write_all(self._target, self._held)

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
        self._touch_owner(status)

    def _touch_owner(self, status: os.stat_result) -> None:
        """envd chowns what it is given, and clients wait for the event that this makes."""
        if self._account.as_root:
            os.fchown(self._target, self._account.uid, self._account.gid)
        elif status.st_uid == self._account.uid:
            with suppress(OSError):
                os.fchown(self._target, status.st_uid, status.st_gid)

    def _open_for_much(self) -> None:
        self.close()
        paths.make_parents(self._path)
        self._spool = _open_nameless(self._path)
        if self._spool < 0:
            self._open()
            if not self._created:
                os.ftruncate(self._target, 0)
        elif _exists(self._path):
            self._open()  # what cannot be written is said before much of it has come

    async def _place_spool(self) -> None:
        if self._target < 0:
            with rights.of(self._account):
                if self._is_named():
                    return
                self._open()
        await self._copy_spool()

    def _is_named(self) -> bool:
        """Give the nameless file its name; False where there is a file by now, or no such way."""
        try:
            with paths.parent_of(self._path) as (directory, name):
                source = b"/proc/self/fd/%d" % self._spool
                os.link(source, name, dst_dir_fd=directory, follow_symlinks=True)
        except OSError:
            return False
        self._target, self._spool, self._created = self._spool, -1, True
        self._announce()
        return True

    def _announce(self) -> None:
        """Make the events that clients wait for, of which a new name alone is only the first."""
        self._touch_owner(os.fstat(self._target))
        size = os.fstat(self._target).st_size
        os.pwrite(self._target, os.pread(self._target, 1, size - 1), size - 1)

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
        return paths.open_path(directory, os.O_TMPFILE | os.O_RDWR, _MODE)
    except OSError:
        return -1


def _exists(path: bytes) -> bool:
    """Also a link that leads nowhere: what is written to it goes where it leads."""
    with paths.parent_of(path) as (directory, name):
        try:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
    return True


def _write_all(fd: int, data: bytes | bytearray) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
