"""Keeps more sandboxes from being begun than the host has memory for."""

from collections.abc import Iterator
from contextlib import contextmanager

from paddock.domain.pressure import admit
from paddock.ports.host import HostMemory


class Admission:
    """Promises memory to what is being made, before it has taken any."""

    def __init__(self, memory: HostMemory, reservation_mib: float) -> None:
        self._memory = memory
        self._reservation_mib = reservation_mib
        self._reserved_mib = 0.0

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Room for one more sandbox; Unavailable with the measured figure when there is none."""
        admit(self._memory(), self._reserved_mib, self._reservation_mib)
        self._reserved_mib += self._reservation_mib
        try:
            yield
        finally:
            self._reserved_mib -= self._reservation_mib
