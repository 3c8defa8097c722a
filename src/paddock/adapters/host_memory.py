"""This machine's memory, as the kernel reckons it."""

from pathlib import Path

from paddock.domain.pressure import Memory

_MEMINFO = Path("/proc/meminfo")


def host_memory() -> Memory:
    """The port's `HostMemory`. MemAvailable counts what can be had without swapping."""
    found = {}
    for line in _MEMINFO.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            found[name] = int(rest.split()[0]) / 1024
    return Memory(found["MemTotal"], found["MemAvailable"])
