"""Processes of this host: who belongs to whom, and how a whole family is stopped or ended."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_PASSES = 50
_PART = 65536


@dataclass(frozen=True, slots=True)
class Proc:
    """One line of the process table; the start time tells a reused pid from the old one."""

    pid: int
    parent: int
    start: int
    cpu_seconds: float
    """Of the process and of those of its children that have ended."""
    memory_bytes: int
    is_dead: bool

    @property
    def lives(self) -> bool:
        now = read(self.pid)
        return now is not None and now.start == self.start and not now.is_dead


def read(pid: int) -> Proc | None:
    """None when there is no such process."""
    content = _read_file(f"/proc/{pid}/stat")
    if not content:
        return None
    fields = content.rpartition(b")")[2].split()
    return Proc(
        pid=pid,
        parent=int(fields[1]),
        start=int(fields[19]),
        cpu_seconds=sum(map(int, fields[11:15])) / _TICKS,
        memory_bytes=int(fields[21]) * _PAGE,
        is_dead=fields[0] in b"ZX",
    )


def is_catching(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (number - 1) & 1)


@dataclass(frozen=True, slots=True)
class Family:
    """The descendants of a process, itself first, and whoever else carries the marker.

    The marker is `NAME=VALUE` in the environment: it is still there when the first process has died
    and its descendants belong to somebody else. The start time keeps a stranger out who has got the
    pid of the dead.
    """

    pid: int
    start: int
    marker: str

    def members(self) -> list[Proc]:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        table = [proc for number in numbers if (proc := read(number)) and not proc.is_dead]
        found = [proc for proc in table if (proc.pid, proc.start) == (self.pid, self.start)]
        known = {proc.pid for proc in found}
        found += [p for p in table if p.pid not in known and _is_marked(p.pid, self.marker)]
        known = {proc.pid for proc in found}
        for parent in found:  # grows while it is walked
            children = [p for p in table if p.parent == parent.pid and p.pid not in known]
            known |= {child.pid for child in children}
            found += children
        return found

    def freeze(self) -> list[Proc]:
        """Stop all of them; one that is stopped cannot fork, so the set ends up complete."""
        stopped: dict[int, Proc] = {}
        for _ in range(_MOST_PASSES):
            fresh = [proc for proc in self.members() if proc.pid not in stopped]
            if not fresh:
                break
            _signal(fresh, signal.SIGSTOP)
            stopped |= {proc.pid: proc for proc in fresh}
        return list(stopped.values())

    def thaw(self) -> None:
        _signal(reversed(self.members()), signal.SIGCONT)

    async def end(self) -> None:
        """Kill all of them; nothing is left when this returns."""
        doomed = self.freeze()
        _signal(doomed, signal.SIGKILL)
        while any(proc.lives for proc in doomed):  # noqa: ASYNC110 - strangers are told nothing
            await asyncio.sleep(0.005)


def _is_marked(pid: int, marker: str) -> bool:
    environment, entry = _read_file(f"/proc/{pid}/environ"), marker.encode()
    return entry in environment and entry in environment.split(b"\0")


def _read_file(path: str) -> bytes:
    """Read a file of /proc; nothing where it cannot be read.

    Without a file object: a look at all processes reads hundreds of files.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(handle, _PART):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(handle)


def _signal(processes: Iterable[Proc], number: signal.Signals) -> None:
    for proc in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(proc.pid, number)
