"""Processes of this host, named so that none is ever taken for another."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is still the same one: its number alone may be given to another."""

    pid: int
    started: int
    """In ticks since the host was started."""

    @classmethod
    def of(cls, pid: int) -> "Process":
        """Whoever has that number now. ProcessLookupError when nobody does."""
        try:
            return cls(pid, _start_ticks(pid))
        except FileNotFoundError as error:
            raise ProcessLookupError(f"there is no process {pid}") from error

    def alive(self) -> bool:
        with suppress(OSError):
            return _start_ticks(self.pid) == self.started
        return False

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of it. ProcessLookupError when it has ended, whoever has its number now.

        As long as whatever is done with the descriptor succeeds, all that was read below
        /proc/<pid> since it was opened was read of this process.
        """
        descriptor = os.pidfd_open(self.pid)
        try:
            if not self.alive():
                raise ProcessLookupError(f"process {self.pid} has ended, and its number is free")
            yield descriptor
        finally:
            os.close(descriptor)


def _start_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X"):
        raise ProcessLookupError(pid)
    return int(fields[19])
