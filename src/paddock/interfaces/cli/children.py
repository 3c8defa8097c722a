"""Ending a program with all that it started, and leaving the terminal to it while it runs.

A session or a process group of its own would be ended in one call, but whatever is in one cannot
ask on the terminal: ssh would have no way to a passphrase.
"""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_LOOK_S, _LOOKS = 0.02, 250


async def end_tree(process: Process) -> None:
    """Kill it and its descendants, and wait until they are gone, but not for ever.

    Each is stopped before its children are looked for: what is stopped starts no more, and as it
    does not wait for those that ended, no number becomes a stranger's meanwhile. Where the system
    shows nobody's children (no /proc), what it started has to notice by itself.
    """
    found: list[int] = []
    if process.returncode is None:
        _send(process.pid, signal.SIGSTOP)
        found = [process.pid]
        while fresh := [pid for pid in _children(found) if pid not in found]:
            for pid in fresh:
                _send(pid, signal.SIGSTOP)
            found += fresh
        for pid in found:
            _send(pid, signal.SIGKILL)
    # Not process.wait(): that also waits for whoever has its pipes, such as a detached ssh master.
    for _ in range(_LOOKS):
        if process.returncode is not None and not any(_runs(pid) for pid in found):
            return
        await asyncio.sleep(_LOOK_S)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _children(parents: list[int]) -> Iterator[int]:
    for stat in _PROC.glob("[0-9]*/stat"):
        fields = _fields(stat)
        if len(fields) > 1 and int(fields[1]) in parents:
            yield int(stat.parent.name)


def _runs(pid: int) -> bool:
    fields = _fields(_PROC / str(pid) / "stat")
    return bool(fields) and fields[0] not in ("Z", "X")


def _fields(stat: Path) -> list[str]:
    """State and parent, and what follows; a program's name may have anything in it."""
    try:
        return stat.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
