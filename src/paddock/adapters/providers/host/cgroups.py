"""Control groups of one sandbox: limits, freezing, accounting and the end of everything in it.

Hosts have version 1, version 2 or both side by side (hybrid, where the controllers are on version
1). A sandbox has the same path below every hierarchy.
"""

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paddock.domain.errors import Broken
from paddock.domain.sandbox import Resources

_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where this host's control groups are mounted."""

    unified: Path | None
    """The version 2 mount, if it has the controllers."""
    v1: tuple[tuple[frozenset[str], Path], ...] = ()
    """Controllers and mount point of each version 1 hierarchy."""

    @property
    def version(self) -> int:
        return 2 if self.unified else 1

    def roots(self) -> tuple[Path, ...]:
        return (self.unified,) if self.unified else tuple(path for _, path in self.v1)

    def controller(self, name: str) -> Path | None:
        if self.unified:
            return self.unified
        return next((path for names, path in self.v1 if name in names), None)


@cache
def host_hierarchies(mountinfo: str = "/proc/self/mountinfo") -> Hierarchies:
    return parse_mountinfo(Path(mountinfo).read_text())


def parse_mountinfo(text: str) -> Hierarchies:
    unified: Path | None = None
    v1: dict[frozenset[str], Path] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        point = Path(before.split(" ")[4])
        if kind == "cgroup2":
            unified = unified or point
        elif kind == "cgroup":
            names = frozenset(options.split(" ")[-1].split(",")) - {"rw", "ro", "xattr"}
            v1.setdefault(names, point)
    if any("memory" in names for names in v1):
        return Hierarchies(None, tuple(v1.items()))
    return Hierarchies(unified, ())


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The control group at one path below every hierarchy."""

    hierarchies: Hierarchies
    path: str
    """Relative, such as `paddock/3f2a/sb-…`."""

    def directories(self) -> tuple[Path, ...]:
        return tuple(root / self.path for root in self.hierarchies.roots())

    def exists(self) -> bool:
        return any(directory.exists() for directory in self.directories())

    def procs_files(self) -> tuple[str, ...]:
        return tuple(
            str(directory / "cgroup.procs")
            for directory in self.directories()
            if directory.exists()
        )

    def _file(self, controller: str, v1: str, v2: str) -> Path | None:
        root = self.hierarchies.controller(controller)
        if root is None:
            return None
        return root / self.path / (v2 if self.hierarchies.version == 2 else v1)

    def accounting_files(self) -> dict[str, str]:
        """What the guest may read of its own group, by the names of the files."""
        files = (
            self._file("memory", "memory.oom_control", "memory.events"),
            self._file("memory", "memory.usage_in_bytes", "memory.current"),
            self._file("memory", "memory.limit_in_bytes", "memory.max"),
            self._file("cpuacct", "cpuacct.usage", "cpu.stat"),
            self._file("pids", "pids.current", "pids.current"),
        )
        return {path.name: str(path) for path in files if path is not None}

    def pids(self) -> list[int]:
        found: set[int] = set()
        for name in self.procs_files():
            with contextlib.suppress(FileNotFoundError, OSError):
                found.update(int(line) for line in Path(name).read_text().split())
        return sorted(found - {0})

    def apply(self, resources: Resources) -> None:
        """Change the limits of a running sandbox."""
        memory = resources.memory_mib << 20
        quota = int(resources.cpus * _PERIOD_US)
        if self.hierarchies.version == 2:
            self._write("cpu", "", "cpu.max", f"{quota} {_PERIOD_US}")
            self._write("memory", "", "memory.max", str(memory))
        else:
            self._write("cpu", "cpu.cfs_period_us", "", str(_PERIOD_US))
            self._write("cpu", "cpu.cfs_quota_us", "", str(quota))
            self._write("memory", "memory.limit_in_bytes", "", str(memory))
        self._write("pids", "pids.max", "pids.max", str(resources.pids))

    def _write(self, controller: str, v1: str, v2: str, value: str) -> None:
        path = self._file(controller, v1, v2)
        if path is None:
            return
        try:
            path.write_text(value)
        except OSError as error:
            raise Broken(f"the limit {path.name} could not be set to {value}: {error}") from error

    def freeze(self, timeout: float = 10.0) -> None:
        """Return when nothing in it runs; on failure everything runs again."""
        try:
            if self.hierarchies.version == 2:
                self._await_frozen_v2(timeout)
            else:
                self._await_frozen_v1(timeout)
        except BaseException:
            self.thaw()
            raise

    def _await_frozen_v1(self, timeout: float) -> None:
        state = self._file("freezer", "freezer.state", "")
        if state is None:
            raise Broken("this host has no freezer controller")
        until = time.monotonic() + timeout
        while True:
            # Written each time: a fork that raced with the first write may have left a task out.
            state.write_text("FROZEN")
            if state.read_text().strip() == "FROZEN":
                return
            if time.monotonic() > until:
                raise Broken(f"{self.path} did not freeze within {timeout:.0f} s")
            time.sleep(0.0005)

    def _await_frozen_v2(self, timeout: float) -> None:
        assert self.hierarchies.unified is not None
        directory = self.hierarchies.unified / self.path
        (directory / "cgroup.freeze").write_text("1")
        until = time.monotonic() + timeout
        while "frozen 1" not in (directory / "cgroup.events").read_text():
            if time.monotonic() > until:
                raise Broken(f"{self.path} did not freeze within {timeout:.0f} s")
            time.sleep(0.0005)

    def thaw(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.hierarchies.version == 2:
                assert self.hierarchies.unified is not None
                (self.hierarchies.unified / self.path / "cgroup.freeze").write_text("0")
            elif state := self._file("freezer", "freezer.state", ""):
                state.write_text("THAWED")

    def frozen(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            if self.hierarchies.version == 2:
                assert self.hierarchies.unified is not None
                return (
                    self.hierarchies.unified / self.path / "cgroup.freeze"
                ).read_text().strip() == "1"
            if state := self._file("freezer", "freezer.state", ""):
                return state.read_text().strip() != "THAWED"
        return False

    def read_counter(self, controller: str, v1: str, v2: str) -> int | None:
        path = self._file(controller, v1, v2)
        if path is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            return int(path.read_text())
        return None

    def memory_bytes(self) -> int | None:
        return self.read_counter("memory", "memory.usage_in_bytes", "memory.current")

    def memory_peak_bytes(self) -> int | None:
        return self.read_counter("memory", "memory.max_usage_in_bytes", "memory.peak")

    def pids_count(self) -> int | None:
        return self.read_counter("pids", "pids.current", "pids.current")

    def cpu_seconds(self) -> float | None:
        if self.hierarchies.version == 1:
            nanoseconds = self.read_counter("cpuacct", "cpuacct.usage", "")
            return None if nanoseconds is None else nanoseconds / 1e9
        return _keyed(self._file("cpu", "", "cpu.stat"), "usage_usec", 1e-6)

    def oom_kills(self) -> int:
        path = self._file("memory", "memory.oom_control", "memory.events")
        return int(_keyed(path, "oom_kill", 1) or 0)

    def kill(self, timeout: float = 10.0) -> None:
        """Return when no process is left in it."""
        self.thaw()
        until = time.monotonic() + timeout
        delay = 0.0005
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                    _kill_member(pid, self.path)
            if time.monotonic() > until:
                raise Broken(f"processes {pids} of {self.path} cannot be ended")
            time.sleep(delay)
            delay = min(delay * 2, 0.02)

    def remove(self, timeout: float = 5.0) -> None:
        """Absent is success; groups made inside it go too."""
        until = time.monotonic() + timeout
        for directory in self.directories():
            while True:
                try:
                    _remove_tree(directory)
                    break
                except OSError as error:
                    if time.monotonic() > until:
                        raise Broken(f"control group {directory} stays: {error}") from error
                    time.sleep(0.002)


def is_member(pid: int, path: str) -> bool:
    """Whether a process is in the group with that path. FileNotFoundError when there is none."""
    return f"/{path}\n" in Path(f"/proc/{pid}/cgroup").read_text()


def _kill_member(pid: int, path: str) -> None:
    """Unless it has ended meanwhile, and its number belongs to somebody else."""
    descriptor = os.pidfd_open(pid)
    try:
        if is_member(pid, path):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


def _remove_tree(directory: Path) -> None:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return
    except OSError:
        children = [child for child in directory.iterdir() if child.is_dir()]
        if not children:
            raise
        for child in children:
            _remove_tree(child)
        directory.rmdir()


def _keyed(path: Path | None, key: str, scale: float) -> float | None:
    if path is None:
        return None
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value) * scale
    return None
