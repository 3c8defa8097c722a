"""Processes that end, and others that are then given their numbers."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paddock.adapters.providers.host.processes import Process

_TRIES = 500


@contextmanager
def sleeper(*prefix: str) -> Iterator[Process]:
    """A process that does nothing for as long as it is looked at."""
    with subprocess.Popen([*prefix, "sleep", "300"]) as child:
        try:
            yield Process.of(child.pid)
        finally:
            child.kill()


@contextmanager
def heir_of(process: Process) -> Iterator[Process]:
    """Another process, on the host's own network, with the number of one that has ended."""
    for _ in range(_TRIES):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(process.pid - 1))
        with sleeper() as heir:
            if heir.pid == process.pid:
                yield heir
                return
    raise AssertionError(f"others are always quicker to get the number {process.pid}")
