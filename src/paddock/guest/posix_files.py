"""paddock.Files: files as POSIX has them, one small step per call, for who speaks SFTP.

envd's own calls are made for agents: a removal takes the whole tree, an upload replaces the whole
file. Here nothing does more than the system call it is named after, and no call leaves anything
open. Whose rights count and where paths may lead is as everywhere: see `rights` and `paths`.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Callable

from . import connect, fields, paths, rights
from .connect import Call, Message, StreamOpener
from .environment import decode, encode
from .errors import GuestError, from_path_error, invalid
from .query import parse_query
from .state import GuestState
from .users import Account, Accounts

_AT_ONCE = 200
_LARGEST_WRITE = 8 << 20
_QUIET = os.O_NONBLOCK | os.O_NOCTTY
_MODE_BITS = 0o7777
_LARGEST_ID = 2**32 - 2


class PosixFiles:
    """The calls; each acts as the account that HTTP Basic names."""

    def __init__(self, state: GuestState) -> None:
        self._state = state

    async def stat(self, call: Call, message: Message) -> Message:
        flags = os.O_PATH if fields.flag(message, "follow", default=True) else _NOT_FOLLOWED
        with _acting(call, message) as path, paths.opened(path, flags) as fd:
            return {"attributes": _attributes(self._state.accounts, os.fstat(fd))}

    async def set(self, call: Call, message: Message) -> Message:
        """Mode, owner, times and size, as far as they are given. Links are followed."""
        with _acting(call, message) as path, paths.opened(path, os.O_PATH) as fd:
            _set(fd, path, message)
        return {}

    async def open(self, call: Call, message: Message) -> Message:
        """What opening it so would do: make it, refuse it, cut it. Nothing stays open."""
        with _acting(call, message) as path:
            fd = paths.open_path(path, _open_flags(message), _mode(message, 0o666))
            try:
                status = os.fstat(fd)
            finally:
                os.close(fd)
            if not stat.S_ISREG(status.st_mode):
                raise invalid(f"{decode(path)} is not a regular file")
            return {"attributes": _attributes(self._state.accounts, status)}

    async def scan(self, call: Call, message: Message, opener: StreamOpener) -> None:
        """The names in a directory with their attributes, unsorted, some at a time."""
        account = call.account
        with _acting(call, message) as path:
            fd = paths.open_path(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            stream = opener.open()
            with os.scandir(fd) as found:
                while (entries := self._some(found, account)) is not None:
                    stream.send({"entries": entries})
                    await stream.drain()
        finally:
            os.close(fd)

    def _some(self, found: Iterator[os.DirEntry[str]], account: Account) -> list[Message] | None:
        """The next of them, or None at the end."""
        with rights.of(account):
            some = list(itertools.islice(found, _AT_ONCE))
            return [*_described(self._state.accounts, some)] if some else None

    async def make_directory(self, call: Call, message: Message) -> Message:
        with _acting(call, message) as path, paths.parent_of(path) as (directory, name):
            os.mkdir(name, _mode(message, 0o777), dir_fd=directory)
        return {}

    async def remove_directory(self, call: Call, message: Message) -> Message:
        """An empty one."""
        with _acting(call, message) as path, paths.parent_of(path) as (directory, name):
            os.rmdir(name, dir_fd=directory)
        return {}

    async def remove_file(self, call: Call, message: Message) -> Message:
        with _acting(call, message) as path, paths.parent_of(path) as (directory, name):
            os.unlink(name, dir_fd=directory)
        return {}

    async def rename(self, call: Call, message: Message) -> Message:
        """Over what is there only with `replace`."""
        target = _path(call, message, "destination")
        with _acting(call, message) as path, ExitStack() as stack:
            source_dir, source = stack.enter_context(paths.parent_of(path))
            target_dir, name = stack.enter_context(paths.parent_of(target))
            if not fields.flag(message, "replace") and _exists(target_dir, name):
                raise GuestError("already_exists", f"{decode(target)} is there already")
            os.rename(source, name, src_dir_fd=source_dir, dst_dir_fd=target_dir)
        return {}

    async def link(self, call: Call, message: Message) -> Message:
        """A symbolic link to any text, or with `hard` a second name of a file."""
        target = encode(fields.text(message, "target"))
        with _acting(call, message) as path, paths.parent_of(path) as (directory, name):
            if not fields.flag(message, "hard"):
                os.symlink(target, name, dir_fd=directory)
                return {}
            with paths.parent_of(_path(call, message, "target")) as (target_dir, target_name):
                os.link(
                    target_name,
                    name,
                    src_dir_fd=target_dir,
                    dst_dir_fd=directory,
                    follow_symlinks=False,
                )
        return {}

    async def read_link(self, call: Call, message: Message) -> Message:
        with _acting(call, message) as path, paths.parent_of(path) as (directory, name):
            return {"target": decode(os.readlink(name, dir_fd=directory))}

    async def real_path(self, call: Call, message: Message) -> Message:
        """Absolute and without links, as far as it is there."""
        with _acting(call, message) as path:
            return {"path": decode(_real_path(path))}

    async def space(self, call: Call, message: Message) -> Message:
        with _acting(call, message) as path, paths.opened(path, os.O_PATH) as fd:
            found = os.statvfs(fd)
        said = {name[2:]: getattr(found, name) for name in dir(found) if name.startswith("f_")}
        # A number without a sign, which is only there to be compared: 63 bits of it will do.
        return {**said, "fsid": said["fsid"] & (2**63 - 1)}


async def write_at(call: Call) -> None:
    """The body, as it is, to an offset of a file that is there; to its end with `append`."""
    query = parse_query(call.exchange.query)
    message: Message = {**query, "append": query.get("append") == "true"}
    try:
        offset = fields.number(message, "offset", 0, 2**62)
        data = await call.exchange.read_all(_LARGEST_WRITE)
        flags = os.O_WRONLY | _QUIET | (os.O_APPEND if message["append"] else 0)
        with _acting(call, message) as path, paths.opened(path, flags) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise invalid(f"{decode(path)} is not a regular file")
            rest = memoryview(data)
            while rest:
                written = os.pwrite(fd, rest, offset + len(data) - len(rest))
                rest = rest[written:]
    except GuestError as error:
        connect.refuse(call.exchange, error)
        return
    call.exchange.respond(200, b"{}", ("content-type", "application/json"))


def methods(state: GuestState) -> dict[str, Callable[[Call], Awaitable[None]]]:
    service = PosixFiles(state)
    table = {
        "Stat": connect.unary(service.stat),
        "Set": connect.unary(service.set),
        "Open": connect.unary(service.open),
        "Scan": connect.server_stream(service.scan),
        "MakeDirectory": connect.unary(service.make_directory),
        "RemoveDirectory": connect.unary(service.remove_directory),
        "RemoveFile": connect.unary(service.remove_file),
        "Rename": connect.unary(service.rename),
        "Link": connect.unary(service.link),
        "ReadLink": connect.unary(service.read_link),
        "RealPath": connect.unary(service.real_path),
        "Space": connect.unary(service.space),
        "WriteAt": write_at,
    }
    return {f"POST /paddock.Files/{name}": method for name, method in table.items()}


_NOT_FOLLOWED = os.O_PATH | os.O_NOFOLLOW


@contextmanager
def _acting(call: Call, message: Message) -> Iterator[bytes]:
    """The path that is meant, with the account's rights; nothing may be awaited inside."""
    account, path = call.account, _path(call, message, "path")
    try:
        with rights.of(account):
            yield path
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe or a socket that nobody reads
            raise invalid(f"{decode(path)} is not a regular file") from None
        raise from_path_error(error, path) from None


def _path(call: Call, message: Message, name: str) -> bytes:
    return call.state.absolute(fields.text(message, name), call.account)


def _mode(message: Message, default: int) -> int:
    return fields.number(message, "mode", default, _MODE_BITS)


def _open_flags(message: Message) -> int:
    flags = os.O_RDWR if fields.flag(message, "read") else os.O_WRONLY
    flags = flags if fields.flag(message, "write") else os.O_RDONLY
    for name, bit in (("create", os.O_CREAT), ("exclusive", os.O_EXCL), ("cut", os.O_TRUNC)):
        flags |= bit if fields.flag(message, name) else 0
    return flags | _QUIET


def _set(fd: int, path: bytes, message: Message) -> None:
    held = b"/proc/self/fd/%d" % fd  # a descriptor that only names a file takes none of these
    if message.get("size") is not None:
        with paths.opened(path, os.O_WRONLY | _QUIET) as writable:
            os.ftruncate(writable, fields.number(message, "size", 0, 2**62))
    if message.get("uid") is not None and message.get("gid") is not None:
        ids = (fields.number(message, name, 0, _LARGEST_ID) for name in ("uid", "gid"))
        os.chown(held, *ids)
    if message.get("mode") is not None:
        os.chmod(held, _mode(message, 0))
    if message.get("atime") is not None and message.get("mtime") is not None:
        times = (fields.number(message, name, 0, 2**40) * 10**9 for name in ("atime", "mtime"))
        os.utime(held, ns=tuple(times))  # type: ignore[arg-type]


def _exists(directory: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _real_path(path: bytes) -> bytes:
    """What is not there is taken as it is written, as `realpath -m` does."""
    missing: list[bytes] = []
    while True:
        try:
            with paths.opened(path, os.O_PATH) as fd:
                whole = os.path.join(paths.real_path(fd), *reversed(missing))
                return os.path.normpath(whole)
        except (FileNotFoundError, NotADirectoryError):
            path, name = os.path.split(path.rstrip(b"/"))
            missing.append(name)


def _described(accounts: Accounts, found: list[os.DirEntry[str]]) -> Iterator[Message]:
    for entry in found:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # it went away meanwhile
        name = decode(os.fsencode(entry.name))
        yield {"name": name, "attributes": _attributes(accounts, status)}


def _attributes(accounts: Accounts, status: os.stat_result) -> Message:
    return {
        "mode": status.st_mode,
        "size": status.st_size,
        "uid": status.st_uid,
        "gid": status.st_gid,
        "owner": accounts.user_name(status.st_uid),
        "group": accounts.group_name(status.st_gid),
        "atime": int(status.st_atime),
        "mtime": int(status.st_mtime),
        "links": status.st_nlink,
    }
