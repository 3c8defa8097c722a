"""Limits that gVisor's kernel leaves to others: it counts memory, and nobody in it enforces.

What the host enforces it enforces on that kernel as a whole, which would end the sandbox and not
the command. So the guest itself ends the largest process when there is too much, just before the
host would, and tells of it where a control group of Linux does.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

_ROOT = "/sys/fs/cgroup"
_BYTES_PER_S = 2 << 30
"""No program takes memory more quickly than this."""
_SHORTEST, _LONGEST = 0.005, 1.0
_TO_DIE = 0.05


def keep(memory: int, processes: int, root: str = _ROOT) -> None:
    """Have the limits kept from now on, as long as this process lives."""
    # Only root needs this one: a user has a limit of its own, which counts exactly.
    _write(f"{root}/pids/pids.max", processes)
    _write(f"{root}/memory/memory.limit_in_bytes", memory)
    watch = MemoryWatch(memory, root)
    threading.Thread(target=watch.run, name="memory", daemon=True).start()


def _write(path: str, value: int) -> None:
    with suppress(OSError), open(path, "w", encoding="ascii") as file:
        file.write(str(value))


class MemoryWatch:
    """Looks the more often the less there is left."""

    def __init__(self, limit: int, root: str = _ROOT, proc: str = "/proc") -> None:
        self._limit = limit
        self._proc = proc
        self._usage = os.open(f"{root}/memory/memory.usage_in_bytes", os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._kills = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._events = os.open(f"{root}/memory.events", flags, 0o644)
        self._tell()

    def run(self) -> None:
        while True:
            time.sleep(self.look())

    def look(self) -> float:
        """End a process if there is too much; returns when to look again, in seconds."""
        left = self._limit - self._used()
        if left < 0:
            self._end_largest()
            return _SHORTEST
        return min(max(left / _BYTES_PER_S, _SHORTEST), _LONGEST)

    def _used(self) -> int:
        return int(os.pread(self._usage, 32, 0))

    def _end_largest(self) -> None:
        size, pid = max(self._processes(), default=(0, 0))
        if not size:
            return
        self._kills += 1
        self._tell()  # before it dies: whoever waits for it asks at once
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        # What it had comes back bit by bit: until then the next one is not to blame.
        until = time.monotonic() + _TO_DIE + size / _BYTES_PER_S
        while self._used() > self._limit and time.monotonic() < until:
            time.sleep(_SHORTEST)

    def _processes(self) -> list[tuple[int, int]]:
        """Size in memory and number of every process but this one."""
        numbers = (int(name) for name in os.listdir(self._proc) if name.isdigit())
        return [(self._size(pid), pid) for pid in numbers if pid != os.getpid()]

    def _size(self, pid: int) -> int:
        try:
            with open(f"{self._proc}/{pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * self._page
        except (OSError, IndexError):
            return 0  # it has just ended

    def _tell(self) -> None:
        os.pwrite(self._events, b"oom_kill %d\n" % self._kills, 0)
