"""Show a sandbox's CPU and memory limits in /proc and /sys, where programs look for them.

The kernel shows the host's numbers in /proc and /sys, whatever the control group allows. Files with
the sandbox's limits are mounted over them. They are static: `free` shows the limit, not what is
used at the moment.
"""

import contextlib
import math
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from paddock.adapters.providers.host.cgroups import Cgroup
from paddock.domain.sandbox import Resources

PLACES = {
    "meminfo": "/proc/meminfo",
    "cpuinfo": "/proc/cpuinfo",
    "online": "/sys/devices/system/cpu/online",
}
"""By the name of the file on the host: where it is in the sandbox."""

_NOTHING = ("Buffers", "Cached", "SwapCached", "SwapTotal", "SwapFree", "Shmem", "SReclaimable")


def choose_cpus(cpus: float, usable: Sequence[int], turns: Iterator[int]) -> tuple[int, ...]:
    """Return as many CPUs as the limit needs, from where the sandbox before ended. Each CPU that is
    given takes one of `turns`."""
    count = max(1, math.ceil(cpus))
    if count >= len(usable):
        return tuple(usable)
    return tuple(sorted(usable[next(turns) % len(usable)] for _ in range(count)))


def usable_cpus() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


def listed(cpus: Sequence[int]) -> str:
    """As the kernel writes and reads lists of CPUs."""
    return ",".join(str(cpu) for cpu in cpus)


def pin(cgroup: Cgroup, cpus: Sequence[int]) -> None:
    """Run everything in the group on these CPUs. Hosts without the controller use all of them."""
    root = cgroup.hierarchies.controller("cpuset")
    with contextlib.suppress(OSError):
        if root is not None:
            (root / cgroup.path / "cpuset.cpus").write_text(listed(cpus))


def write(directory: Path, resources: Resources, cpus: Sequence[int]) -> None:
    """Write the files. Those that exist are changed in place, because they are mounted."""
    directory.mkdir(parents=True, exist_ok=True)
    _put(directory / "meminfo", meminfo(resources.memory_mib))
    _put(directory / "cpuinfo", cpuinfo(_host_cpuinfo(), cpus))
    _put(directory / "online", f"{listed(cpus)}\n")


def _put(path: Path, text: str) -> None:
    # Without O_TRUNC: ext4 takes milliseconds to write a file again that was emptied before.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(descriptor, text.encode(), 0)
        os.ftruncate(descriptor, len(text.encode()))
    finally:
        os.close(descriptor)


@cache
def _host_cpuinfo() -> str:
    """Read once: the kernel measures the clock of every CPU for it."""
    return Path("/proc/cpuinfo").read_text()


def meminfo(memory_mib: int) -> str:
    whole = memory_mib << 10
    values = {
        "MemTotal": whole,
        "MemFree": whole,
        "MemAvailable": whole,
        **dict.fromkeys(_NOTHING, 0),
    }
    return "".join(f"{name + ':':<16}{value:>8} kB\n" for name, value in values.items())


def cpuinfo(host: str, cpus: Sequence[int]) -> str:
    """Keep the paragraphs of these CPUs; everything if the host numbers them in another way."""
    paragraphs = {
        int(found[1]): paragraph
        for paragraph in host.split("\n\n")
        if (found := re.match(r"processor\s*:\s*(\d+)", paragraph))
    }
    if not set(cpus) <= set(paragraphs):
        return host
    return "".join(f"{paragraphs[cpu].rstrip()}\n\n" for cpu in cpus)
