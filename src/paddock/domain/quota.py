"""Quotas: how much a team may have of what an installation shares among teams."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from paddock.domain.errors import InvalidRequest, LimitExceeded, QuotaExceeded
from paddock.domain.sandbox import Resources

MIB = 1 << 20
_LARGEST = 10**12


class QuotaName(StrEnum):
    """A resource that is limited for each team."""

    SANDBOXES = "sandboxes"
    """Sandboxes that are not deleted, in any state."""
    CPUS = "cpus"
    """Total of its sandboxes. Stopped ones count, so that they can always start."""
    MEMORY_MIB = "memory_mib"
    """Total of its sandboxes, counted like CPUs."""
    DISK_MIB = "disk_mib"
    """Disk limits of sandboxes, volumes, snapshots, and the files and templates of builds."""
    TASKS = "tasks"
    """Unfinished tasks."""
    EVENTS_MIB = "events_mib"
    """Stored events and agent output."""
    SANDBOX_EVENTS_MIB = "sandbox_events_mib"
    """Stored events and agent output of one sandbox or of one task."""


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """Settings under `[quotas]`: the limits of teams that have no limit of their own."""

    sandboxes: int | None = None
    """None sets no limit, here and below."""
    cpus: float | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None
    tasks: int | None = None
    events_mib: int | None = 8192
    """Stored events and agent output. Above the limit, only Paddock's own events are stored, and
    none that programs in sandboxes cause."""
    sandbox_events_mib: int | None = 256
    """Stored events and agent output of one sandbox or task."""

    @property
    def limits(self) -> "Limits":
        found = {QuotaName(each.name): getattr(self, each.name) for each in fields(self)}
        return check_limits(found)


Limits = Mapping[QuotaName, float | None]
"""None means unlimited."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that a team uses or requests."""

    sandboxes: int = 0
    cpus: float = 0.0
    memory_mib: int = 0
    disk_mib: float = 0.0
    tasks: int = 0
    events_mib: float = 0.0

    def of(self, name: QuotaName) -> float:
        used: float = getattr(self, name, 0.0)
        return used

    @property
    def wanted(self) -> tuple[QuotaName, ...]:
        """The names of resources that are not zero."""
        return tuple(QuotaName(each.name) for each in fields(self) if getattr(self, each.name))


def usage_of(resources: Resources) -> Usage:
    """Return the usage of one more sandbox."""
    return Usage(1, resources.cpus, resources.memory_mib, resources.disk_mib)


def check_limits(limits: Limits) -> Limits:
    for name, most in limits.items():
        if most is not None and not 0 <= most <= _LARGEST:
            raise InvalidRequest(
                f"the quota {name} is {most:g}; it must be between 0 and {_LARGEST}",
                remediation="give a number, or `unlimited`",
            )
    return limits


def check_room(team: str, limits: Limits, used: Usage, wanted: Usage) -> None:
    """Raise QuotaExceeded if there is no room now, LimitExceeded if there never can be."""
    for name in wanted.wanted:
        most, more = limits.get(name), wanted.of(name)
        if most is None or used.of(name) + more <= most:
            continue
        # Waiting helps only if the request fits once everything else is gone.
        kind = LimitExceeded if more > most else QuotaExceeded
        raise kind(
            f"team {team} is limited to {_said(most)} {name}: it has {_said(used.of(name))}, and "
            f"{_said(more)} more {'was' if more == 1 else 'were'} requested",
            remediation="delete what you do not need, or ask an operator to raise the limit: "
            f"`paddock team quota set {team} --{name.replace('_', '-')} N`",
        )


def _said(amount: float) -> str:
    return f"{round(amount, 2):.10g}"
