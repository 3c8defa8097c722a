"""Changes of a sandbox that leave its state as it is: name, labels, lifetime, ports."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from paddock.domain.errors import Conflict, InvalidRequest
from paddock.domain.lifetime import MAX_TIMEOUT_S, Terms, kept_alive_until
from paddock.domain.records import SandboxRecord, check_name
from paddock.domain.sandbox import SandboxState
from paddock.domain.work import Work

_WITH_A_CLOCK = frozenset({SandboxState.CREATING, SandboxState.RUNNING, SandboxState.PAUSED})


@dataclass(frozen=True, slots=True)
class Amendment:
    """Changes to a sandbox. None leaves a field unchanged."""

    name: str | None = None
    labels: Mapping[str, str] | None = None
    lifetime: Terms = field(default_factory=Terms)
    timeout_s: float | None = None
    """From now on."""
    keep_alive_s: float | None = None
    """From now on, clamped; 0 ends it."""
    public_ports: frozenset[int] | None = None
    work: Work | None = None
    task: str | None = None
    """That works in it from now on; never what a caller says."""


def amended(current: SandboxRecord, wanted: Amendment, now: float) -> SandboxRecord:
    """The sandbox with what shall be different."""
    clock = current.clock
    if wanted.timeout_s is not None:
        if not 0 < wanted.timeout_s <= MAX_TIMEOUT_S:
            raise InvalidRequest(
                f"timeout_s is {wanted.timeout_s:g}; it must be between 0 and {MAX_TIMEOUT_S:g}",
                remediation="give the seconds from now on",
            )
        if current.state not in _WITH_A_CLOCK:
            raise Conflict(
                f"sandbox {current.name} is {current.state}, and its time begins when it starts",
                remediation="set `lifetime.timeout_s` instead, or start it first",
            )
        clock = replace(clock, expires_at=now + wanted.timeout_s)
    if wanted.keep_alive_s is not None:
        clock = replace(clock, keep_alive_until=kept_alive_until(wanted.keep_alive_s, now))
    changed = replace(
        current,
        name=current.name if wanted.name is None else check_name(wanted.name),
        labels=current.labels if wanted.labels is None else dict(wanted.labels),
        lifetime=current.lifetime.changed(wanted.lifetime),
        public_ports=(current.public_ports if wanted.public_ports is None else wanted.public_ports),
        work=wanted.work or current.work,
        task=current.task if wanted.task is None else wanted.task,
        clock=clock,
    )
    return current if changed == current else replace(changed, changed_at=now)
