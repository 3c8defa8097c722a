"""A watcher of one directory, in envd's terms, also of everything below it."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Callable

from . import entries, inotify, paths, rights
from .connect import Message
from .environment import decode
from .errors import GuestError
from .inotify import Happening, Inotify
from .users import Account, Accounts

_TYPES = (
    (inotify.CREATE | inotify.MOVED_TO, "EVENT_TYPE_CREATE"),
    (inotify.MODIFY, "EVENT_TYPE_WRITE"),
    (inotify.DELETE | inotify.DELETE_SELF, "EVENT_TYPE_REMOVE"),
    (inotify.MOVED_FROM | inotify.MOVE_SELF, "EVENT_TYPE_RENAME"),
    (inotify.ATTRIB, "EVENT_TYPE_CHMOD"),
)
_WITH_ENTRY = ("EVENT_TYPE_CREATE", "EVENT_TYPE_WRITE", "EVENT_TYPE_CHMOD")
_DIRECTORIES_AT_ONCE = 200
_PASSED_OVER = (FileNotFoundError, NotADirectoryError, PermissionError)
"""Why a directory below may not be watched: it is gone, replaced, or closed to the account."""

LOST = GuestError(
    "resource_exhausted", "more happened than could be kept: list the directory and watch again"
)


class Watcher:
    """Turns what inotify tells of a directory into envd's events, as far as an account may see.

    `on_event` gets each event; `on_lost` is called when events were lost and never again after.
    """

    def __init__(
        self,
        source: Inotify,
        accounts: Accounts,
        account: Account,
        path: bytes,
        *,
        recursive: bool,
        include_entry: bool,
        on_event: Callable[[Message], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._source = source
        self._accounts = accounts
        self._account = account
        self._path = path
        self._recursive = recursive
        self._include_entry = include_entry
        self._on_event = on_event
        self._on_lost = on_lost
        self._below: dict[int, bytes] = {}
        """Each watched directory and its path relative to the watched one."""
        self._announced: set[bytes] = set()
        """What was found in a new directory, whose own event may still be on its way."""
        self._adopted: set[bytes] = set()
        """New directories that are watched already, though their event is still on its way."""

    async def open(self) -> None:
        directory = self._open(self._path)
        try:
            self._watch(directory, b"")
            if self._recursive:
                await self._watch_below(directory)
        finally:
            os.close(directory)

    def close(self) -> None:
        for number in self._below:
            self._source.unwatch(number, self._on_happening)
        self._below = {}

    def _open(self, path: bytes, flags: int = 0, *, dir_fd: int | None = None) -> int:
        """A directory, if the one who watches may read it."""
        with rights.of(self._account):
            return paths.open_path(path, os.O_RDONLY | os.O_DIRECTORY | flags, dir_fd=dir_fd)

    def _watch(self, directory: int, relative: bytes) -> None:
        self._below[self._source.watch(directory, self._on_happening)] = relative

    async def _watch_below(self, directory: int) -> None:
        todo = [b""]
        count = 0
        while todo:
            inner = self._watch_children(directory, todo.pop())
            todo += inner
            count += len(inner)
            if count > _DIRECTORIES_AT_ONCE:
                count = 0
                await asyncio.sleep(0)

    def _watch_children(self, root: int, relative: bytes) -> list[bytes]:
        """Watch the directories in one that is watched already; their relative paths."""
        try:
            directory = self._open(relative or b".", dir_fd=root)
        except _PASSED_OVER:
            return []
        try:
            inner = [os.path.join(relative, n) for n in inotify.subdirectories(directory)]
            return [path for path in inner if self._watch_child(directory, path)]
        finally:
            os.close(directory)

    def _watch_child(self, directory: int, relative: bytes) -> bool:
        try:
            fd = self._open(os.path.basename(relative), os.O_NOFOLLOW, dir_fd=directory)
        except _PASSED_OVER:
            return False
        try:
            if not inotify.is_watchable(fd):
                return False
            self._watch(fd, relative)
            return True
        finally:
            os.close(fd)

    def _on_happening(self, happening: Happening) -> None:
        if happening.mask & inotify.OVERFLOW:
            self._on_lost()
            return
        relative = self._below.get(happening.directory)
        if relative is None:
            return
        if happening.mask & inotify.IGNORED:
            del self._below[happening.directory]
            return
        if happening.mask & (inotify.DELETE_SELF | inotify.MOVE_SELF) and relative:
            return  # the directory above tells the same, by name
        path = os.path.join(relative, happening.name) if happening.name else relative or b"."
        self._tell(happening.mask, path)
        if self._recursive and happening.mask & inotify.IS_DIR:
            self._follow_directory(happening.mask, path)

    def _tell(self, mask: int, path: bytes) -> None:
        kind = next((name for bits, name in _TYPES if mask & bits), None)
        if kind is None:
            return
        if kind == "EVENT_TYPE_CREATE" and path in self._announced:
            self._announced.discard(path)
            return
        event: Message = {"name": decode(path), "type": kind}
        if self._include_entry and kind in _WITH_ENTRY:
            self._accounts.refresh()
            # It may be gone again, which will be told too.
            with suppress(OSError), rights.of(self._account):
                event["entry"] = entries.describe(self._accounts, os.path.join(self._path, path))
        self._on_event(event)

    def _follow_directory(self, mask: int, path: bytes) -> None:
        if mask & (inotify.MOVED_FROM | inotify.DELETE):
            self._adopted.discard(path)
            inside = path + b"/"
            for number, known in tuple(self._below.items()):
                if known == path or known.startswith(inside):
                    del self._below[number]
                    self._source.unwatch(number, self._on_happening)
        elif mask & (inotify.CREATE | inotify.MOVED_TO) and path not in self._adopted:
            with suppress(OSError):  # it may be gone again, or there are no watches left for it
                self._adopt(path)

    def _adopt(self, path: bytes) -> None:
        """Watch a new directory, and tell what was put there before the watch stood."""
        if not self._adopted:
            self._source.when_settled(self._forget_announcements)
        self._adopted.add(path)
        full = os.path.join(self._path, path)
        directory = self._open(full, os.O_NOFOLLOW)
        try:
            self._watch(directory, path)
        finally:
            os.close(directory)
        # Opened anew: btrfs lists only what was there when a directory was opened, and what came
        # between that and the watch would be seen by neither.
        directory = self._open(full, os.O_NOFOLLOW)
        try:
            names = sorted(map(os.fsencode, os.listdir(directory)))
            directories = set(inotify.subdirectories(directory))
        finally:
            os.close(directory)
        for name in names:
            inner = os.path.join(path, name)
            self._tell(inotify.CREATE, inner)
            self._announced.add(inner)
            if name in directories:
                with suppress(*_PASSED_OVER):
                    self._adopt(inner)

    def _forget_announcements(self) -> None:
        self._announced.clear()
        self._adopted.clear()
