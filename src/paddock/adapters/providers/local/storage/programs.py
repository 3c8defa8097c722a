"""The programs that do the long work on directory trees, and how they are told to stop.

A thread cannot be cancelled, but the program that it waits for can be ended: however large a tree
is, whoever wants to stop need not wait for the last of its files.
"""

import asyncio
import errno
import os
import subprocess
import threading
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol, TypeVar

from paddock.adapters.providers.finishing import uncancelled

_T = TypeVar("_T")


class _Stops(Protocol):
    def kill(self) -> None: ...


class _Reins:
    """On the programs of one piece of work, and on the reins of pieces within it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[_Stops] = set()
        self.pulled = False

    def kill(self) -> None:
        with self._lock:
            self.pulled = True
            for each in self._held:
                each.kill()

    @contextmanager
    def on(self, each: _Stops) -> Iterator[None]:
        with self._lock:
            self._held.add(each)
            if self.pulled:
                each.kill()
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(each)


_reins: ContextVar[_Reins | None] = ContextVar("reins", default=None)


async def stoppable(work: Awaitable[_T]) -> _T:
    """Wait for the end, as uncancelled() does; but a cancellation ends the programs that are waited
    for, so that the end comes soon. What they were removing is removed all the same."""
    with _held() as reins:
        return await uncancelled(work, hurry=reins.kill)


@contextmanager
def hurried(error: BaseException) -> Iterator[None]:
    """For who cleans up after an error: after a cancellation nothing in here awaits a program."""
    with _held() as reins:
        if isinstance(error, asyncio.CancelledError):
            reins.kill()
        yield


@contextmanager
def _held() -> Iterator[_Reins]:
    """What is begun within, in whichever thread, is on these reins."""
    reins, outer = _Reins(), _reins.get()
    token = _reins.set(reins)
    try:
        with outer.on(reins) if outer else nullcontext():
            yield reins
    finally:
        _reins.reset(token)


def is_stopped() -> bool:
    reins = _reins.get()
    return reins is not None and reins.pulled


def check_stopped() -> None:
    """EINTR once the work has been told to stop."""
    if is_stopped():
        raise InterruptedError(errno.EINTR, "told to stop")


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Its end and what it said, in the language of no country. EINTR when it was told to stop."""
    check_stopped()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},
    ) as program:
        with (_reins.get() or _Reins()).on(program):
            said, complained = program.communicate()
    check_stopped()
    return subprocess.CompletedProcess(command, program.returncode, said, complained)


def removal(path: Path) -> list[str]:
    return ["rm", "-rf", "--one-file-system", "--", str(path)]


def leave_to_itself(command: Sequence[str]) -> None:
    """Nobody waits for it, and it outlives this process."""
    program = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=program.wait, name="left to itself", daemon=True).start()
