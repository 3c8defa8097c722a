"""The machine that sandboxes of this control plane run on, where it is this one."""

from typing import Protocol

from paddock.domain.pressure import Memory


class HostMemory(Protocol):
    """How much memory this machine has and has left."""

    def __call__(self) -> Memory: ...
