"""What a sandbox may reach."""

from dataclasses import dataclass
from enum import StrEnum


class NetworkMode(StrEnum):
    """How much network there is at all, before any rule is looked at."""

    NONE = "none"
    """Loopback only. Nothing outside the sandbox can be reached."""
    OPEN = "open"
    """Everything the host can route to, except the host itself and link-local addresses."""


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """The policy of one sandbox. Closed unless said otherwise."""

    mode: NetworkMode = NetworkMode.NONE


CLOSED = EgressPolicy()
OPEN = EgressPolicy(NetworkMode.OPEN)
