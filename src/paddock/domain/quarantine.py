"""Setting a sandbox aside: how odd what happens in it is, and who may still go in."""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.domain.errors import Forbidden, InvalidRequest
from paddock.domain.team import Principal, Role

ACTOR = "paddock/quarantine"
_OURS = "paddock/"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Kept with a sandbox that was set aside."""

    by: str
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Signs:
    """What was seen of a task and its sandbox, lately."""

    refused: float = 0.0
    """Connections that it was not let to make."""
    dangers: float = 0.0
    """Commands that somebody should look at."""
    restarts: float = 0.0
    """Of its agent, within the hour."""
    repeats: float = 0.0
    """Of the same call with the same result."""
    busy_s: float = 0.0
    """That it computes without a word."""
    errors: float = 0.0
    """Of its tool calls, the part that failed."""


@dataclass(frozen=True, slots=True)
class Weight:
    """How much a sign counts when it is there in full, and what is in full."""

    share: float
    full: float
    words: str


WEIGHTS: dict[str, Weight] = {
    "refused": Weight(0.35, 20.0, "{:.0f} connections refused"),
    "dangers": Weight(0.35, 2.0, "{:.0f} dangerous commands"),
    "restarts": Weight(0.20, 3.0, "{:.0f} restarts within an hour"),
    "repeats": Weight(0.20, 8.0, "the same call {:.0f} times"),
    "busy_s": Weight(0.15, 900.0, "{:.0f} s of computing without a word"),
    "errors": Weight(0.15, 0.8, "{:.0%} of its calls fail"),
}
"""The one table. No sign alone is enough: together they are more than 1, and 1 is the most."""


@dataclass(frozen=True, slots=True)
class OddnessConfig:
    """Settings under `[tasks.odd]`: when odd behaviour is brought up, and what is done then."""

    threshold: float = 0.8
    """From here on a reading counts."""
    readings: int = 3
    """So many in a row are brought up; see `tasks.guardian.odd`."""
    every_s: float = 30.0
    """Between two readings. 0 takes none."""
    window_s: float = 600.0
    """How far back refusals and dangers count."""
    quarantine: bool = False
    """Whether its sandbox is set aside at once, without asking anybody first."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1 or self.readings < 1 or min(self.every_s, self.window_s) < 0:
            raise InvalidRequest(
                f"tasks.odd has threshold {self.threshold:g}, readings {self.readings}, every_s "
                f"{self.every_s:g} and window_s {self.window_s:g}",
                remediation="threshold is more than 0 and at most 1, readings 1 or more, times "
                "not negative",
            )


def oddness(signs: Signs) -> float:
    """From 0, which is nothing, to 1."""
    return round(min(1.0, sum(_part(signs, name) for name in WEIGHTS)), 3)


def in_order(signs: Signs) -> list[str]:
    """Their names, with what counts the most first."""
    return sorted(WEIGHTS, key=lambda name: _part(signs, name), reverse=True)


def in_words(signs: Signs) -> str:
    """What counts the most, first."""
    found = in_order(signs)
    said = (WEIGHTS[name].words.format(getattr(signs, name)) for name in found)
    return ", ".join(words for name, words in zip(found, said, strict=True) if _part(signs, name))


def _part(signs: Signs, name: str) -> float:
    weight = WEIGHTS[name]
    seen = float(getattr(signs, name))
    return weight.share * min(1.0, max(0.0, seen) / weight.full)


def is_too_odd(readings: Sequence[float], config: OddnessConfig) -> bool:
    last = readings[-config.readings :]
    return len(last) == config.readings and min(last) >= config.threshold


def check_open(quarantine: Quarantine | None, name: str, principal: Principal) -> None:
    """Forbidden in a sandbox that was set aside, for all but admins and what sets aside itself."""
    if quarantine is None or _goes_in(principal):
        return
    raise Forbidden(
        f"sandbox {name} was set aside by {quarantine.by}: {quarantine.why}",
        remediation=f"an admin looks into it, and opens it with `paddock quarantine clear {name}`",
    )


def closed() -> Forbidden:
    """For who is not known to be of the team: that nobody gets in, and nothing of why."""
    return Forbidden(
        "this sandbox is closed for now",
        remediation="ask whoever gave you the address; admins of its team know more",
    )


def check_evidence(
    quarantine: Quarantine | None, name: str, principal: Principal, *, letting_go: bool = False
) -> None:
    """The same for a snapshot of one. Its time may also be up: parts of Paddock let it go."""
    if quarantine is None or _goes_in(principal):
        return
    if letting_go and principal.role is Role.ADMIN:
        return
    raise Forbidden(
        f"snapshot {name} is evidence: its sandbox was set aside by {quarantine.by}: "
        f"{quarantine.why}",
        remediation="ask an admin of the team, who may use and delete it; or take another snapshot",
    )


def _goes_in(principal: Principal) -> bool:
    if principal.actor == ACTOR:
        return True
    return principal.role is Role.ADMIN and not principal.actor.startswith(_OURS)
