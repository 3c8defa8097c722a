"""Limits for everything in one jail: a control group, and a system call filter."""

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from paddock.adapters.providers.host.cgroups import Cgroup, Hierarchies, host_hierarchies
from paddock.adapters.providers.host.seccomp import compile_filter
from paddock.domain.errors import Broken
from paddock.domain.sandbox import Resources

_CONTROLLERS = ("cpu", "memory", "pids")
_PARENT = "paddock/jails"


def jail_resources() -> Resources:
    """Half of the host's CPUs, so that unpacking an image does not starve sandboxes."""
    return Resources(cpus=max(1.0, (os.cpu_count() or 1) / 2), memory_mib=2048, pids=256)


@cache
def jail_filter() -> bytes:
    """The same system calls as in sandboxes."""
    return compile_filter()


@contextlib.contextmanager
def limited_group() -> Iterator[tuple[str, ...]]:
    """Create a control group with limits, and yield the files that a process writes 0 to to join.

    Kill everything in the group and remove it at the end. Without root, or where the host lets us
    create no group, yield nothing: the limits of each process remain.
    """
    group = Cgroup(_hierarchies(), f"{_PARENT}/{os.getpid()}-{os.urandom(4).hex()}")
    if os.geteuid() != 0 or not _created(group):
        yield ()
        return
    try:
        yield group.procs_files()
    finally:
        group.kill()
        group.remove()
        for directory in group.directories():
            with contextlib.suppress(OSError):  # another jail is there
                directory.parent.rmdir()


def _hierarchies() -> Hierarchies:
    """Only those that limit something: version 1 has others, which need a set-up of their own."""
    found = host_hierarchies()
    limiting = [each for each in found.v1 if each[0] & set(_CONTROLLERS)]
    return Hierarchies(found.unified, tuple(limiting))


def _created(group: Cgroup) -> bool:
    try:
        for root, directory in zip(group.hierarchies.roots(), group.directories(), strict=True):
            if group.hierarchies.unified:
                _delegate(root)
            directory.mkdir(parents=True)
        group.apply(jail_resources())
    except (OSError, Broken):
        with contextlib.suppress(Broken):
            group.remove()
        return False
    return True


def _delegate(root: Path) -> None:
    """Let version 2 apply the controllers below each of the group's parents."""
    for part in (root, *(root / each for each in ("paddock", _PARENT))):
        part.mkdir(exist_ok=True)
        (part / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in _CONTROLLERS))
