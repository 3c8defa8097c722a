"""A task that cannot go on for now: since when, how long until the next try, and when people hear
of it."""

from dataclasses import dataclass, replace

ALERT_AFTER_S = 300.0
_REST_S = 0.25
_LONGEST_REST_S = 30.0
"""Between two tries."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Of a task that stands still because somebody it needs is away, or there is no room."""

    since: float
    is_told: bool = False
    """It was for so long that people were alerted to it."""


def stood(before: Standing | None, now: float, alert_after_s: float) -> tuple[Standing, bool]:
    """After one more try in vain, and whether that is when people are alerted."""
    standing = before or Standing(now)
    if standing.is_told or now - standing.since < alert_after_s:
        return standing, False
    return replace(standing, is_told=True), True


def rest_s(
    tries: int, now: float, *, deadline: float | None = None, asked_s: float | None = None
) -> float:
    """Until the next try: longer each time, and as long as who has no room has said. Not beyond the
    deadline: that is looked at when it comes."""
    grown_s = _REST_S * 2.0 ** min(tries, 20)
    rest = min(_LONGEST_REST_S, max(grown_s, asked_s or 0.0))
    left_s = rest if deadline is None else deadline - now
    return min(rest, left_s) if left_s > 0 else rest
