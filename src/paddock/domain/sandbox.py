"""The sandbox: its states, what may follow what, and the limits it lives under."""

import math
from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from typing import TypedDict

from paddock.domain.errors import Conflict, InvalidRequest


class SandboxState(StrEnum):
    """Paused keeps memory, stopped keeps the disk, archived keeps a compressed copy."""

    CREATING = "creating"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    ARCHIVED = "archived"
    FAILED = "failed"
    DELETING = "deleting"
    DELETED = "deleted"


_S = SandboxState

TRANSITIONS: dict[SandboxState, frozenset[SandboxState]] = {
    _S.CREATING: frozenset({_S.RUNNING, _S.FAILED, _S.DELETING}),
    _S.RUNNING: frozenset({_S.PAUSED, _S.STOPPED, _S.FAILED, _S.DELETING}),
    _S.PAUSED: frozenset({_S.RUNNING, _S.STOPPED, _S.FAILED, _S.DELETING}),
    _S.STOPPED: frozenset({_S.RUNNING, _S.ARCHIVED, _S.FAILED, _S.DELETING}),
    _S.ARCHIVED: frozenset({_S.RUNNING, _S.STOPPED, _S.FAILED, _S.DELETING}),
    _S.FAILED: frozenset({_S.DELETING}),
    _S.DELETING: frozenset({_S.DELETED, _S.FAILED}),
    _S.DELETED: frozenset(),
}


def transition(name: str, current: SandboxState, target: SandboxState) -> SandboxState:
    """The target state, or Conflict that names both and what is possible instead."""
    allowed = TRANSITIONS[current]
    if target in allowed:
        return target
    possible = ", ".join(sorted(allowed)) or "nothing: it is gone"
    raise Conflict(
        f"sandbox {name} is {current} and cannot become {target}",
        remediation=f"from {current} it can become: {possible}",
    )


FLOORS: dict[str, tuple[float, tuple[type, ...]]] = {
    "cpus": (0.05, (int, float)),
    "memory_mib": (16, (int,)),
    "disk_mib": (16, (int,)),
    "pids": (8, (int,)),
}


@dataclass(frozen=True, slots=True)
class Resources:
    """What a sandbox may use at most."""

    cpus: float = 1.0
    memory_mib: int = 1024
    disk_mib: int = 10240
    pids: int = 1024

    def __post_init__(self) -> None:
        for name, (floor, kinds) in FLOORS.items():
            value = getattr(self, name)
            is_number = isinstance(value, kinds) and not isinstance(value, bool)
            if not is_number or not floor <= value < math.inf:
                whole = "" if float in kinds else "a whole number, "
                raise InvalidRequest(
                    f"{name} is {value!r}; it must be {whole}at least {floor}",
                    remediation=f"ask for {name} of {floor} or more, or leave it out",
                )

    def changed(self, limits: "Limits") -> "Resources":
        """With what was said; what was not is as it was."""
        return replace(self, **limits)

    def fitted(self, most: "Resources") -> "Resources":
        """The same, but for defaults: where nothing was asked for, what there is will do."""
        unasked = Resources()
        return Resources(
            *(
                min(mine, limit) if mine == default else mine
                for mine, default, limit in zip(
                    astuple(self), astuple(unasked), astuple(most), strict=True
                )
            )
        )

    def check_within(self, most: "Resources") -> None:
        """Raise when this asks for more than there is."""
        for name in ("cpus", "memory_mib", "disk_mib", "pids"):
            asked, limit = getattr(self, name), getattr(most, name)
            if asked > limit:
                raise InvalidRequest(
                    f"{name} of {asked} was asked for, but this host has only {limit}",
                    remediation=f"ask for {name} of {limit} or less",
                )


class Limits(TypedDict, total=False):
    """What somebody said of resources; what is not in here was not said."""

    cpus: float
    memory_mib: int
    disk_mib: int
    pids: int
