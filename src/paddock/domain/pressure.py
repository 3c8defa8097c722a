"""Memory pressure: bands with hysteresis, who is stopped first, and who may still come in."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from paddock.domain.errors import Unavailable

HYSTERESIS_PERCENT = 2.0
RESERVATION_MIB = 128
"""What a sandbox is promised while it is being made: many times what an idle one takes."""
RETRY_AFTER_S = 30


class Band(IntEnum):
    """How short memory is; a higher band allows more to be done about it."""

    NORMAL = 0
    MODERATE = 1
    """Idle sandboxes are stopped, the longest idle first."""
    HIGH = 2
    """Always-on ones too, as long as nothing works in them."""
    CRITICAL = 3
    """Also working ones, the heaviest last resort: better one than all of them by the kernel."""


MODERATE_PERCENT, HIGH_PERCENT, CRITICAL_PERCENT = 15.0, 10.0, 5.0
"""Of memory left; a band is entered below."""
_ENTERED_BELOW = {
    Band.MODERATE: MODERATE_PERCENT,
    Band.HIGH: HIGH_PERCENT,
    Band.CRITICAL: CRITICAL_PERCENT,
}


def kept_warm(size: int, current: Band) -> int:
    """How many sandboxes that nobody has asked for may wait: they go before anybody's."""
    if current is Band.NORMAL:
        return size
    return size // 2 if current is Band.MODERATE else 0


@dataclass(frozen=True, slots=True)
class Memory:
    """The host's memory, in MiB."""

    total_mib: float
    available_mib: float

    @property
    def free_percent(self) -> float:
        return 100.0 * self.available_mib / self.total_mib if self.total_mib else 100.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running sandbox that might be stopped to free memory."""

    id: str
    active_at: float
    memory_mib: float
    working: bool
    always_on: bool


def band(memory: Memory, current: Band) -> Band:
    """Where the host is now. A band is left only two percent above where it was entered."""
    free = memory.free_percent
    for candidate in (Band.CRITICAL, Band.HIGH, Band.MODERATE):
        slack = HYSTERESIS_PERCENT if current >= candidate else 0.0
        if free < _ENTERED_BELOW[candidate] + slack:
            return candidate
    return Band.NORMAL


def victims(
    candidates: Iterable[Candidate], current: Band, memory: Memory
) -> tuple[Candidate, ...]:
    """Whom to stop, in order, until the band would be left: longest idle first, working ones last
    and only when it is critical, and of these the lightest first."""
    if current is Band.NORMAL:
        return ()
    wanted = (_ENTERED_BELOW[Band.MODERATE] + HYSTERESIS_PERCENT) / 100 * memory.total_mib
    missing = wanted - memory.available_mib
    chosen: list[Candidate] = []
    for candidate in sorted(candidates, key=_order):
        if missing <= 0:
            break
        if not _may_stop(candidate, current):
            continue
        chosen.append(candidate)
        missing -= candidate.memory_mib
    return tuple(chosen)


def _order(candidate: Candidate) -> tuple[bool, bool, float]:
    rank = candidate.memory_mib if candidate.working else candidate.active_at
    return candidate.working, candidate.always_on, rank


def _may_stop(candidate: Candidate, current: Band) -> bool:
    if candidate.working:
        return current is Band.CRITICAL
    return current >= Band.HIGH or not candidate.always_on


def admit(memory: Memory, reserved_mib: float, reservation_mib: float = RESERVATION_MIB) -> None:
    """Raise when one more sandbox would not fit beside what is promised already."""
    left = memory.available_mib - reserved_mib
    if left >= reservation_mib:
        return
    raise Unavailable(
        f"{left:.0f} MiB of memory are left on this host, and a new sandbox needs "
        f"{reservation_mib:.0f} MiB to start with",
        remediation="stop sandboxes that are not needed (`paddock ls`), or try again in "
        f"{RETRY_AFTER_S} s",
        retry_after_s=RETRY_AFTER_S,
    )
