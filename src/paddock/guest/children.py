"""Every child of the guest is reaped here, its own and those it was given."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections import deque
from dataclasses import dataclass
from typing import Callable

_REMEMBERED = 512


@dataclass(frozen=True)
class Exit:
    """How a child ended, as the kernel says it."""

    status: int
    cpu_seconds: float
    max_rss_bytes: int

    @property
    def signal(self) -> int | None:
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None

    @property
    def code(self) -> int:
        """The shell's convention: 128 + N for a death by signal N."""
        if os.WIFSIGNALED(self.status):
            return 128 + os.WTERMSIG(self.status)
        return os.WEXITSTATUS(self.status)


OnExit = Callable[[Exit], None]


class Children:
    """Waits for all children at once.

    The guest adopts orphans, so it has to take every SIGCHLD anyway; a pidfd per command would
    only add system calls to that, and refuses to exist on old kernels.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, OnExit] = {}
        self._ended: deque[int] = deque(maxlen=_REMEMBERED)
        self.listeners: set[Callable[[], object]] = set()
        """Told after each time that something was reaped."""

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_signal_handler(signal.SIGCHLD, self.reap)

    def watch(self, pid: int, on_exit: OnExit) -> None:
        self._waiting[pid] = on_exit

    def is_ours(self, pid: int) -> bool:
        """A program the guest itself started and has not reaped; not an adopted orphan."""
        return pid in self._waiting

    def was_ours(self, pid: int) -> bool:
        """The same, or one that was reaped not long ago."""
        return pid in self._waiting or pid in self._ended

    def reap(self) -> None:
        while self._reap_one():
            pass
        for listener in tuple(self.listeners):
            listener()

    def _reap_one(self) -> bool:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return False
        on_exit = self._waiting.pop(pid, None)
        if on_exit is not None:
            self._ended.append(pid)
            on_exit(_exit(status, usage))
        return True


def _exit(status: int, usage: resource.struct_rusage) -> Exit:
    return Exit(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
