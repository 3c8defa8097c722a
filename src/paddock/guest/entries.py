"""What envd says of a file: its entry, with owner, times, link target and metadata."""

from __future__ import annotations

import asyncio
import fnmatch
import itertools
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass

from . import paths, rights
from .connect import Message
from .environment import decode
from .errors import GuestError, invalid
from .users import Account, Accounts

METADATA_PREFIX = "user.e2b."
_MOST_ENTRIES = 200_000
_ENTRIES_AT_ONCE = 200
_BLOCK = 4096
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


@dataclass(frozen=True)
class Walk:
    """How much of a tree is listed."""

    depth: int = 1
    closed: tuple[bytes, ...] = ()
    """Directories of such names, which may be patterns, are listed but not entered."""
    after: bytes = b""
    """Where a listing goes on: the path, below the directory, of the last entry that was had."""
    limit: int = 0
    """At most so many; 0 is all there are, and an error when that is too much."""

    def enters(self, name: bytes, level: int) -> bool:
        return level < self.depth and not any(fnmatch.fnmatchcase(name, p) for p in self.closed)


async def list_below(
    accounts: Accounts, account: Account, directory: int, path: bytes, *, walk: Walk
) -> tuple[list[Message], bool]:
    """What the account can see below an open directory, sorted, each before its own children.

    The second value says whether there is more than the limit.
    """
    most = walk.limit or _MOST_ENTRIES
    found: list[Message] = []
    visits = _visits(accounts, directory, path, walk)
    while len(found) <= most:
        wanted = min(_ENTRIES_AT_ONCE, most + 1 - len(found))
        with rights.of(account):
            taken = list(itertools.islice(visits, wanted))
        found += taken
        if len(taken) < wanted:
            return found, False
        await asyncio.sleep(0)
    if not walk.limit:
        raise GuestError("resource_exhausted", f"more than {most} entries; list fewer levels")
    return found[:most], True


def _visits(accounts: Accounts, directory: int, path: bytes, walk: Walk) -> Iterator[Message]:
    todo = _resumed(directory, walk)
    while todo:
        relative, level = todo.pop()
        enter = walk.enters(os.path.basename(relative), level)
        try:
            entry, inner = _visit(accounts, directory, relative, path, descend=enter)
        except OSError:
            continue  # it went away meanwhile; the listing is of what is there
        todo += [(os.path.join(relative, name), level + 1) for name in inner]
        yield entry


def _resumed(directory: int, walk: Walk) -> list[tuple[bytes, int]]:
    """What is still to be visited, last first; what went away since is simply not there."""
    if not walk.after:
        return [(name, 1) for name in _names_down(directory)]
    todo: list[tuple[bytes, int]] = []
    above, parts = b"", walk.after.split(b"/")
    for level, part in enumerate(parts, 1):
        if part in (b"", b".", b"..") or b"\0" in part:
            raise invalid("a listing goes on after a path below its directory")
        names = (name for name in _names_in(directory, above) if name > part)
        todo += [(os.path.join(above, name), level) for name in names]
        above = os.path.join(above, part)
    if walk.enters(parts[-1], len(parts)):
        inner = _names_in(directory, above)
        todo += [(os.path.join(above, name), len(parts) + 1) for name in inner]
    return todo


def _visit(
    accounts: Accounts, directory: int, relative: bytes, path: bytes, *, descend: bool
) -> tuple[Message, list[bytes]]:
    """One entry, and the names in it where it is a directory to go into."""
    head, name = os.path.split(relative)
    with paths.opened(head or b".", os.O_PATH | os.O_DIRECTORY, dir_fd=directory) as parent:
        entry = describe_at(accounts, parent, name, os.path.join(path, relative))
        if not descend or "isSymlink" in entry or entry["type"] != "FILE_TYPE_DIRECTORY":
            return entry, []
        try:
            return entry, _names_in(parent, name, missing_ok=False)
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
        "size": str(_size(status)),
        "mode": stat.S_IMODE(status.st_mode) & 0o777,
        "permissions": stat.filemode(status.st_mode),
        "owner": accounts.user_name(status.st_uid),
        "group": accounts.group_name(status.st_gid),
        "modifiedTime": timestamp(status.st_mtime_ns),
    }


def _size(status: os.stat_result) -> int:
    """Return a directory's size in whole blocks, as on ext4. On btrfs an empty one has size 0."""
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    return max(1, -(-status.st_size // _BLOCK)) * _BLOCK


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


def _names_in(parent: int, relative: bytes, *, missing_ok: bool = True) -> list[bytes]:
    """Those of a directory below, which must be no link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        with paths.opened(relative or b".", flags, dir_fd=parent) as fd:
            return _names_down(fd)
    except OSError:
        if not missing_ok:
            raise
        return []
