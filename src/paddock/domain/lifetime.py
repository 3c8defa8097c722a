"""How long a sandbox lives: deadlines, idleness, keep-alive, and what is due when."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypedDict

from paddock.domain.errors import InvalidRequest
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState

DAY = 86400.0
IDLE_TIMEOUT_S = 900.0
ARCHIVE_AFTER_S = 7 * DAY
MAX_TIMEOUT_S = 30 * DAY
MAX_ARCHIVE_AFTER_S = 365 * DAY
MAX_KEEP_ALIVE_S = DAY


class OnTimeout(StrEnum):
    """What happens when a sandbox's time is up."""

    KILL = "kill"
    PAUSE = "pause"
    STOP = "stop"


class Action(StrEnum):
    """What the reaper does to a sandbox."""

    DELETE = "delete"
    PAUSE = "pause"
    STOP = "stop"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class Lifetime:
    """What was asked for when the sandbox was made, or changed since. Seconds; None is never."""

    timeout_s: float | None = None
    on_timeout: OnTimeout = OnTimeout.KILL
    idle_timeout_s: float | None = IDLE_TIMEOUT_S
    archive_after_s: float | None = ARCHIVE_AFTER_S
    always_on: bool = False
    """Exempt from idleness and from moderate memory pressure."""

    def __post_init__(self) -> None:
        _check("timeout_s", self.timeout_s, MAX_TIMEOUT_S)
        _check("idle_timeout_s", self.idle_timeout_s, MAX_TIMEOUT_S)
        _check("archive_after_s", self.archive_after_s, MAX_ARCHIVE_AFTER_S)

    def changed(self, terms: "Terms") -> "Lifetime":
        """With what was said; what was not is as it was."""
        return replace(self, **terms)


class Terms(TypedDict, total=False):
    """What somebody said of a lifetime. None is never; what is not in here was not said."""

    timeout_s: float | None
    on_timeout: OnTimeout
    idle_timeout_s: float | None
    archive_after_s: float | None
    always_on: bool


@dataclass(frozen=True, slots=True)
class Clockwork:
    """The moments that a sandbox's end is reckoned from, in unix seconds."""

    active_at: float
    """When work was last seen: a command, a terminal, a preview, CPU above a floor."""
    expires_at: float | None = None
    keep_alive_until: float | None = None
    stopped_at: float | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """Something that is to be done now, and why."""

    action: Action
    reason: Reason


_TIMED = (SandboxState.RUNNING, SandboxState.PAUSED)
_ON_TIMEOUT = {
    OnTimeout.KILL: Action.DELETE,
    OnTimeout.PAUSE: Action.PAUSE,
    OnTimeout.STOP: Action.STOP,
}


def due(state: SandboxState, lifetime: Lifetime, clock: Clockwork, now: float) -> Due | None:
    """What a sandbox's time asks for now. A deadline comes before idleness."""
    if _passed(deadline(state, lifetime, clock), now):
        return Due(_ON_TIMEOUT[lifetime.on_timeout], Reason.DEADLINE)
    if state is SandboxState.RUNNING and _passed(idle_at(lifetime, clock), now):
        return Due(Action.STOP, Reason.IDLE)
    if state is SandboxState.STOPPED and lifetime.archive_after_s is not None:
        since = clock.stopped_at if clock.stopped_at is not None else clock.active_at
        if _passed(since + lifetime.archive_after_s, now):
            return Due(Action.ARCHIVE, Reason.IDLE)
    return None


def deadline(state: SandboxState, lifetime: Lifetime, clock: Clockwork) -> float | None:
    """When its time is up; None when it has no end, or its end has come already."""
    if state is SandboxState.PAUSED and lifetime.on_timeout is OnTimeout.PAUSE:
        return None
    return clock.expires_at if state in _TIMED else None


def idle_at(lifetime: Lifetime, clock: Clockwork) -> float | None:
    """When it counts as idle if nothing more happens; None when it never does."""
    if lifetime.always_on or lifetime.idle_timeout_s is None:
        return None
    return max(clock.active_at + lifetime.idle_timeout_s, clock.keep_alive_until or 0.0)


def kept_alive_until(seconds: float | None, now: float) -> float | None:
    """Until when no idleness counts; None when none was asked for."""
    if not seconds:
        return None
    if 0 < seconds <= MAX_KEEP_ALIVE_S:
        return now + seconds
    raise InvalidRequest(
        f"keep_alive_s is {seconds:g}; it must be between 0 and {MAX_KEEP_ALIVE_S:g} seconds",
        remediation="ask for it again before it ends, or for lifetime.always_on",
    )


def _passed(moment: float | None, now: float) -> bool:
    return moment is not None and now >= moment


def _check(name: str, value: float | None, most: float) -> None:
    if value is None or (math.isfinite(value) and 1 <= value <= most):
        return
    raise InvalidRequest(
        f"{name} is {value:g}; it must be between 1 and {most:g} seconds",
        remediation=f"ask for {name} in that range, or null for never",
    )
