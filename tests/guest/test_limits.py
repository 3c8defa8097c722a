"""Limits that the guest keeps itself, where the kernel it runs on does not."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.guest.limits import MemoryWatch

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The control groups of a kernel that counts: a directory for each controller."""
    for name in ("memory", "pids"):
        (tmp_path / name).mkdir()
    (tmp_path / "memory/memory.usage_in_bytes").write_text(f"{20 * MIB}\n")
    return tmp_path


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    made = tmp_path / "proc"
    made.mkdir()
    return made


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.wait()


def _enter(proc: Path, pid: int, pages: int) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "statm").write_text(f"{pages * 2} {pages} 0 0 0 0 0\n")


def test_the_largest_process_ends_when_there_is_too_much(
    root: Path, proc: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    small, large = sleepers
    _enter(proc, small.pid, 10)
    _enter(proc, large.pid, 1000)
    watch = MemoryWatch(100 * MIB, str(root), str(proc))
    assert (root / "memory.events").read_text() == "oom_kill 0\n"
    watch.look()
    assert large.poll() is None
    (root / "memory/memory.usage_in_bytes").write_text(f"{101 * MIB}\n")
    watch.look()
    assert large.wait(5) == -9
    assert small.poll() is None
    assert (root / "memory.events").read_text() == "oom_kill 1\n"


def test_it_looks_more_often_the_less_there_is_left(root: Path, proc: Path) -> None:
    watch = MemoryWatch(1 << 40, str(root), str(proc))
    assert watch.look() == 1.0
    near = MemoryWatch(21 * MIB, str(root), str(proc))
    assert near.look() == 0.005
    between = MemoryWatch(1024 * MIB, str(root), str(proc))
    assert 0.005 < between.look() < 1.0


def test_a_process_that_has_just_ended_does_no_harm(root: Path, proc: Path) -> None:
    (proc / "4194305").mkdir()
    (proc / "self").mkdir()
    MemoryWatch(MIB, str(root), str(proc)).look()
    assert (root / "memory.events").read_text() == "oom_kill 0\n"


def test_what_shall_be_kept_can_be_read_where_programs_look_for_it(root: Path) -> None:
    program = f"from paddock.guest.limits import keep; keep({100 * MIB}, 64, {str(root)!r})"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert (root / "memory/memory.limit_in_bytes").read_text() == str(100 * MIB)
    assert (root / "pids/pids.max").read_text() == "64"
    assert (root / "memory.events").read_text() == "oom_kill 0\n"
