"""What the sandbox has used, from the files of its cgroup (version 1 or 2)."""

from __future__ import annotations

import os
from collections.abc import Mapping

_V1 = {
    "memory": ("memory.oom_control", "memory.usage_in_bytes", "memory.limit_in_bytes"),
    "cpuacct": ("cpuacct.usage",),
    "pids": ("pids.current",),
}
_V2 = ("memory.events", "memory.current", "memory.max", "cpu.stat", "pids.current")
_UNLIMITED = 1 << 60


class Accounting:
    """Reads the files it was given; what is not there is None, and no OOM kill was counted."""

    def __init__(self, files: Mapping[str, int]) -> None:
        self._files = files
        self._oom = files.get("memory.events", files.get("memory.oom_control", -1))

    def oom_kills(self) -> int:
        if self._oom < 0:
            return 0
        return _keyed(_read(self._oom), b"oom_kill") or 0

    def memory_bytes(self) -> int | None:
        return self._number("memory.current", "memory.usage_in_bytes")

    def memory_limit_bytes(self) -> int | None:
        limit = self._number("memory.max", "memory.limit_in_bytes")
        return limit if limit is not None and limit < _UNLIMITED else None

    def cpu_seconds(self) -> float | None:
        nanoseconds = self._number("cpuacct.usage")
        if nanoseconds is not None:
            return nanoseconds / 1e9
        if "cpu.stat" not in self._files:
            return None
        microseconds = _keyed(_read(self._files["cpu.stat"]), b"usage_usec")
        return None if microseconds is None else microseconds / 1e6

    def pids(self) -> int | None:
        return self._number("pids.current")

    def _number(self, *names: str) -> int | None:
        for name in names:
            if name in self._files:
                text = _read(self._files[name]).strip()
                return int(text) if text.isdigit() else None
        return None


def open_own_files(root: str = "/sys/fs/cgroup") -> dict[str, int]:
    """The cgroup files a container sees of itself, where they are mounted into it."""
    paths = {name: f"{root}/{name}" for name in _V2}
    for controller, names in _V1.items():
        for name in names:
            if not os.path.exists(paths.get(name, "")):
                paths[name] = f"{root}/{controller}/{name}"
    files = {}
    for name, path in paths.items():
        try:
            files[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
    return files


def _read(fd: int) -> bytes:
    try:
        return os.pread(fd, 4096, 0)
    except OSError:
        return b""


def _keyed(text: bytes, key: bytes) -> int | None:
    for line in text.split(b"\n"):
        name, _, value = line.partition(b" ")
        if name == key and value.isdigit():
            return int(value)
    return None
