"""Where agents are installed on this host, once for all of its sandboxes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from paddock.domain.agent import AGENTS, Package

Progress = Callable[[str, float | None], None]
"""What is being done, and how much of it: 0 to 1, or None where nobody knows."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A package that is whole, and that has answered when it was tried."""

    package: Package
    program: str
    """Within the directory of all agents."""

    @property
    def inside(self) -> str:
        """Where a sandbox finds it."""
        return f"{AGENTS}/{self.program}"


class AgentStore(Protocol):
    """Packages in one directory of this host; any process may use it at the same time."""

    def why_not(self) -> str:
        """What this host lacks for installing anything; empty when it lacks nothing."""
        ...

    async def find(self, package: Package) -> Installed | None:
        """As it was installed; None also when it is not as it was then. Nothing is started."""
        ...

    async def install(self, package: Package, progress: Progress) -> Installed:
        """It is there and answers, whatever was there before. One process at a time does it, and
        the others find it done.

        On any failure nothing of it remains. Unavailable when this host or its network lacks
        something, Refused when the registry has no such package, LimitExceeded when the disk is
        full, Broken when what was installed does not work here.
        """
        ...
