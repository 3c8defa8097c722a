"""Quotas: how much a team may have of what an installation shares among teams."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from paddock.domain.errors import InvalidRequest, LimitExceeded, QuotaExceeded
from paddock.domain.sandbox import Resources

MIB = 1 << 20
_LARGEST = 10**12


class QuotaName(StrEnum):
    """One thing that a team has a limit of."""

    SANDBOXES = "sandboxes"
    """Until they are deleted, whatever their state."""
    CPUS = "cpus"
    """Of all its sandboxes together, also of stopped ones: they can always start."""
    MEMORY_MIB = "memory_mib"
    """The same."""
    DISK_MIB = "disk_mib"
    """What sandboxes may write, volumes, snapshots, and the files and templates of builds."""
    TASKS = "tasks"
    """That are not over."""
    EVENTS_MIB = "events_mib"
    """Stored events and output of agents."""
    SANDBOX_EVENTS_MIB = "sandbox_events_mib"
    """The same of one sandbox, or of one task."""


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """Settings under `[quotas]`: limits of every team that operators have set no other for."""

    sandboxes: int | None = None
    """Left out, there is no limit. The same holds for each of these."""
    cpus: float | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None
    tasks: int | None = None
    events_mib: int | None = 8192
    """Stored events and output of agents. Beyond, nothing is stored of what programs in sandboxes
    cause; Paddock's own events are."""
    sandbox_events_mib: int | None = 256
    """The same of one sandbox or task."""

    @property
    def limits(self) -> "Limits":
        found = {QuotaName(each.name): getattr(self, each.name) for each in fields(self)}
        return check_limits(found)


Limits = Mapping[QuotaName, float | None]
"""None is no limit."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a team has, or wants more of."""

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
        """The names of what is not zero."""
        return tuple(QuotaName(each.name) for each in fields(self) if getattr(self, each.name))


def usage_of(resources: Resources) -> Usage:
    """Of one more sandbox."""
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
    """QuotaExceeded when a limit leaves no room now, LimitExceeded when it never can."""
    for name in wanted.wanted:
        most, more = limits.get(name), wanted.of(name)
        if most is None or used.of(name) + more <= most:
            continue
        # Waiting helps only where there is room once everything else is gone.
        kind = LimitExceeded if more > most else QuotaExceeded
        raise kind(
            f"team {team} may have {_said(most)} {name}: it has {_said(used.of(name))}, and "
            f"{_said(more)} more {'was' if more == 1 else 'were'} asked for",
            remediation="delete what is not needed, or ask the operators of this installation: "
            f"`paddock team quota set {team} --{name.replace('_', '-')} N` raises it",
        )


def _said(amount: float) -> str:
    return f"{round(amount, 2):.10g}"
