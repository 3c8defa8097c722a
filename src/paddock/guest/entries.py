"""What envd says of a file: its entry, with owner, times, link target and metadata."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
import time
from collections.abc import Iterator

from . import paths, rights
from .connect import Message
from .environment import decode
from .errors import GuestError
from .users import Account, Accounts

METADATA_PREFIX = "user.e2b."
_MOST_ENTRIES = 200_000
_ENTRIES_AT_ONCE = 200
_TYPES = (
    (stat.S_ISREG, "FILE_TYPE_FILE"),
    (stat.S_ISDIR, "FILE_TYPE_DIRECTORY"),
    (stat.S_ISLNK, "FILE_TYPE_SYMLINK"),
)


def describe(accounts: Accounts, path: bytes) -> Message:
    with paths.parent_of(path) as (directory, name):
        return describe_at(accounts, directory, name, path.rstrip(b"/") or b"/")


def describe_at(accounts: Accounts, directory: int, name: bytes, path: bytes) -> Message:
    """The entry of a name in an open directory; `path` is only what it is called."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    entry: Message = {}
    if stat.S_ISLNK(status.st_mode):
        entry["isSymlink"] = True
        target = _follow(directory, name)
        if target is not None:
            status, entry["symlinkTarget"] = target
        else:
            entry["symlinkTarget"] = decode(_dangling(directory, name, path))
    metadata = read_metadata(b"/proc/self/fd/%d/%s" % (directory, name))
    if metadata:
        entry["metadata"] = metadata
    return {**_basic(accounts, status, path), **entry}


async def list_below(
    accounts: Accounts, account: Account, directory: int, path: bytes, *, depth: int
) -> list[Message]:
    """What the account can see below an open directory, sorted, each before its own children."""
    found: list[Message] = []
    walk = _walk(accounts, directory, path, depth)
    while True:
        before = len(found)
        with rights.of(account):
            found += itertools.islice(walk, _ENTRIES_AT_ONCE)
        if len(found) > _MOST_ENTRIES:
            raise GuestError(
                "resource_exhausted", f"more than {_MOST_ENTRIES} entries; list fewer levels"
            )
        if len(found) - before < _ENTRIES_AT_ONCE:
            return found
        await asyncio.sleep(0)


def _walk(accounts: Accounts, directory: int, path: bytes, depth: int) -> Iterator[Message]:
    todo = [(name, 1) for name in _names_down(directory)]
    while todo:
        relative, level = todo.pop()
        try:
            entry, inner = _visit(accounts, directory, relative, path, descend=level < depth)
        except OSError:
            continue  # it went away meanwhile; the listing is of what is there
        todo += [(os.path.join(relative, name), level + 1) for name in inner]
        yield entry


def _visit(
    accounts: Accounts, directory: int, relative: bytes, path: bytes, *, descend: bool
) -> tuple[Message, list[bytes]]:
    """One entry, and the names in it where it is a directory to go into."""
    head, name = os.path.split(relative)
    with paths.opened(head or b".", os.O_PATH | os.O_DIRECTORY, dir_fd=directory) as parent:
        entry = describe_at(accounts, parent, name, os.path.join(path, relative))
        if not descend or "isSymlink" in entry or entry["type"] != "FILE_TYPE_DIRECTORY":
            return entry, []
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        try:
            with paths.opened(name, flags, dir_fd=parent) as fd:
                return entry, _names_down(fd)
        except PermissionError:  # it is there, but closed
            return entry, []


def read_metadata(path: bytes) -> dict[str, str]:
    try:
        names = [
            n for n in os.listxattr(path, follow_symlinks=False) if n.startswith(METADATA_PREFIX)
        ]
        return {
            name[len(METADATA_PREFIX) :]: decode(os.getxattr(path, name, follow_symlinks=False))
            for name in sorted(names)
        }
    except OSError:
        return {}


def _basic(accounts: Accounts, status: os.stat_result, path: bytes) -> Message:
    return {
        "name": decode(os.path.basename(path)) or "/",
        "type": file_type(status.st_mode),
        "path": decode(path),
        "size": str(status.st_size),
        "mode": stat.S_IMODE(status.st_mode) & 0o777,
        "permissions": stat.filemode(status.st_mode),
        "owner": accounts.user_name(status.st_uid),
        "group": accounts.group_name(status.st_gid),
        "modifiedTime": timestamp(status.st_mtime_ns),
    }


def file_type(mode: int) -> str:
    return next((name for test, name in _TYPES if test(mode)), "FILE_TYPE_UNSPECIFIED")


def timestamp(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


def _follow(directory: int, name: bytes) -> tuple[os.stat_result, str] | None:
    try:
        with paths.opened(name, os.O_PATH, dir_fd=directory) as fd:
            return os.fstat(fd), decode(paths.real_path(fd))
    except OSError:
        return None


def _dangling(directory: int, name: bytes, path: bytes) -> bytes:
    target = os.readlink(name, dir_fd=directory)
    return os.path.normpath(os.path.join(os.path.dirname(path), target))


def _names_down(directory: int) -> list[bytes]:
    """The names in a directory, last first, as a stack of work wants them."""
    return sorted(map(os.fsencode, os.listdir(directory)), reverse=True)
