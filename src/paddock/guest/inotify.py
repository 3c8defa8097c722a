"""One inotify instance for all watchers: directories and what happens in them."""

from __future__ import annotations

import asyncio
import os
import struct
from dataclasses import dataclass, field
from typing import Callable

from . import syscalls

MODIFY, ATTRIB = 0x2, 0x4
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
OVERFLOW, IGNORED, IS_DIR = 0x4000, 0x8000, 0x40000000
_ONLY_DIRECTORIES = 0x01000000
_MASK = (
    MODIFY
    | ATTRIB
    | MOVED_FROM
    | MOVED_TO
    | CREATE
    | DELETE
    | DELETE_SELF
    | MOVE_SELF
    | _ONLY_DIRECTORIES
)
_HEADER = struct.Struct("iIII")
_READ = 65536
_MOST_READS = 16  # the kernel keeps about half as much, unless told otherwise


@dataclass(frozen=True)
class Happening:
    """One event as the kernel tells it: in which directory, what, to which name."""

    directory: int
    mask: int
    name: bytes


OnHappening = Callable[[Happening], None]


@dataclass
class _Watched:
    listeners: list[OnHappening] = field(default_factory=list)


class Inotify:
    """Shares the instance, of which a user may have few, and each directory's watch."""

    def __init__(self) -> None:
        self._fd = -1
        self._watched: dict[int, _Watched] = {}
        self._delivering = False
        self._when_settled: list[Callable[[], None]] = []

    def watch(self, directory: int, listener: OnHappening) -> int:
        """Tell the listener of what happens in an open directory. The number is the watch's."""
        if self._fd < 0:
            self._fd = syscalls.inotify_init()
            asyncio.get_running_loop().add_reader(self._fd, self.deliver)
        if not self._delivering:
            self.deliver()  # what happened before belongs to those who watched before
        number = syscalls.inotify_add_watch(self._fd, b"/proc/self/fd/%d" % directory, _MASK)
        self._watched.setdefault(number, _Watched()).listeners.append(listener)
        return number

    def unwatch(self, number: int, listener: OnHappening) -> None:
        watched = self._watched.get(number)
        if watched is None or listener not in watched.listeners:
            return
        watched.listeners.remove(listener)
        if not watched.listeners:
            del self._watched[number]
            syscalls.inotify_rm_watch(self._fd, number)

    def deliver(self) -> None:
        """Pass on all that has happened until now; nothing is left in the kernel after it.

        Unless more happens than it could keep: a program can be quicker than we are, for ever.
        """
        if self._fd < 0:
            return
        self._delivering = True
        try:
            for _ in range(_MOST_READS):
                self._pass_on_all(os.read(self._fd, _READ))
        except BlockingIOError:
            pass
        finally:
            self._delivering = False
        settled, self._when_settled = self._when_settled, []
        for callback in settled:
            callback()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call once, when all that has happened until now was passed on."""
        self._when_settled.append(callback)

    def _pass_on_all(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            number, mask, _, length = _HEADER.unpack_from(data, at)
            at += _HEADER.size + length
            self._pass_on(Happening(number, mask, data[at - length : at].rstrip(b"\0")))

    def _pass_on(self, happening: Happening) -> None:
        if happening.mask & OVERFLOW:
            everyone = {listener for w in self._watched.values() for listener in w.listeners}
            for listener in everyone:
                listener(happening)
            return
        watched = self._watched.get(happening.directory)
        if watched is None:
            return
        for listener in tuple(watched.listeners):
            listener(happening)
        if happening.mask & IGNORED:
            self._watched.pop(happening.directory, None)


def is_watchable(directory: int) -> bool:
    """Not the kernel's own trees: nothing is created there, and they are endless."""
    return syscalls.file_system(directory) not in (syscalls.PROCFS, syscalls.SYSFS)


def subdirectories(directory: int) -> list[bytes]:
    with os.scandir(directory) as entries:
        return [os.fsencode(e.name) for e in entries if e.is_dir(follow_symlinks=False)]
