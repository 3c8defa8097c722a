"""Whether an agent still works: its signs of life, and what is done when there are none.

An agent is stuck when it gives no output *and* takes no CPU *and* moves nothing over the network.
A long build is silent but busy, and one that waits for its model listens: neither is disturbed.

working ──> quiet ──> stuck ──> nudge ──> ask ──> restart ──> fail
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from paddock.domain.errors import InvalidRequest

HOUR = 3600.0
_SHORTEST_SAMPLE_S = 1.0
"""Over less than that, what a counter grew by says nothing about a rate."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Settings under `[tasks.health]`: every limit that an agent's health is judged by."""

    quiet_after_s: float = 120.0
    """Without output for so long, an agent counts as quiet."""
    nudge_after_s: float = 300.0
    """Without any sign of life for so long, it is stuck, and told so. 0 leaves that out."""
    ask_after_s: float = 600.0
    """Then a person is asked. 0 asks nobody."""
    restart_after_s: float = 900.0
    """Then it is started again, with its session. 0 leaves it alone."""
    restarts_per_hour: int = 3
    """One more fails the task; its sandbox is kept."""
    restart_cooldown_s: float = 60.0
    """The least between two restarts."""
    restart_backoff: float = 2.0
    """So many times longer after every restart within the hour."""
    stop_grace_s: float = 10.0
    """What has to be ended has so long: half of it after it was asked to, half after SIGTERM, then
    it is killed. One that shows no sign of life is not asked, and has a tenth of it."""
    beat_every_s: float = 5.0
    """How often a sandbox is asked how its agent does."""
    beat_lasts_s: float = 15.0
    """An answer is good for so long. Without another its agent counts as late; after twice as
    long as degraded, after three times as long as lost: then it is started again."""
    claimed_lasts_s: float = 60.0
    """A task that somebody has taken up and not begun for so long is given out again. 0 waits."""
    step_lasts_s: float = 180.0
    """So is one whose workspace comes no step further; each time it has longer. 0 waits."""
    most_starts: int = 5
    """Given out so often without a step further, it fails. 0 never gives it up."""
    diagnose_cooldown_s: float = 600.0
    """What is stuck is looked into at once, and again no sooner than this."""
    most_diagnoses: int = 3
    """Stuck once more after so many looks, a person is asked. 0 looks into nothing."""
    cpu_floor: float = 0.02
    """Less of one core than this is no work: an idle program has timers, too."""
    network_floor: float = 16.0
    """Bytes in a second; fewer are no work."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if not (value := getattr(self, each.name)) >= 0 or math.isinf(value):
                raise InvalidRequest(
                    f"tasks.health.{each.name} is {value!r}; it must be a number from 0 on",
                    remediation="correct it, or leave it out for the default",
                )
        self._check_order()

    @property
    def polite_s(self) -> float:
        """From asking an agent to end to making it."""
        return self.stop_grace_s / 2

    @property
    def gone_s(self) -> float:
        """Who gives no answer for so long is gone."""
        return 3 * self.beat_lasts_s

    @property
    def force_s(self) -> float:
        """From SIGTERM to SIGKILL."""
        return self.stop_grace_s / 2

    @property
    def deaf_s(self) -> float:
        """The same, for one that hears nothing."""
        return self.stop_grace_s / 10

    def _check_order(self) -> None:
        steps = [rung.after_s(self) for rung in LADDER if rung.after_s(self)]
        if steps != sorted(set(steps)):
            raise InvalidRequest(
                "tasks.health has its steps in another order than they are taken in",
                remediation="make nudge_after_s < ask_after_s < restart_after_s; 0 leaves one out",
            )
        if self.restart_backoff < 1 or not self.beat_every_s < self.beat_lasts_s:
            raise InvalidRequest(
                f"tasks.health has restart_backoff {self.restart_backoff:g}, beat_every_s "
                f"{self.beat_every_s:g} and beat_lasts_s {self.beat_lasts_s:g}",
                remediation="restart_backoff must be 1 or more, and beats more often than they "
                "last, or a healthy agent would miss some",
            )


class Measure(StrEnum):
    """What is done about an agent that is stuck; each is stronger than the one before."""

    NUDGE = "nudge"
    ASK = "ask"
    RESTART = "restart"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Rung:
    """One step up, the setting that says when, and what is said about it."""

    measure: Measure
    setting: str
    why: str

    def after_s(self, thresholds: Thresholds) -> float:
        return float(getattr(thresholds, self.setting))


LADDER = (
    Rung(Measure.NUDGE, "nudge_after_s", "it shows no sign of life"),
    Rung(Measure.ASK, "ask_after_s", "a nudge did not help"),
    Rung(Measure.RESTART, "restart_after_s", "it is stuck, and is started again"),
)
"""What follows a restart that is not allowed any more is FAIL; see `may_restart`."""


class Pulse(StrEnum):
    """Whether a sandbox still tells of its agent, when it is asked."""

    STEADY = "steady"
    LATE = "late"
    """For longer than a beat lasts it has not."""
    DEGRADED = "degraded"
    """For twice as long."""
    LOST = "lost"
    """Three times as long as a beat lasts: its agent is started again."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a sandbox tells of its agent when it is asked, every few seconds while the agent
    works."""

    seq: int
    """Of the asking: grows by one with every one, also with those that nobody answers."""
    at: float
    output_at: float | None = None
    """When the agent last wrote something."""
    cpu_s: float | None = None
    """That its processes have used so far; None where nobody can say."""
    network_bytes: int | None = None
    """That went in and out so far."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """When each sign of life was last seen. Plain data: it is kept with the task."""

    output_at: float
    cpu_at: float
    network_at: float
    beat_at: float
    seq: int = 0
    missing: int = 0
    """Beats that never came, by their numbers."""
    pulse: Pulse = Pulse.STEADY
    """As it was last told."""
    sampled_at: float | None = None
    """When the counters had the following values."""
    cpu_s: float | None = None
    network_bytes: int | None = None

    @property
    def alive_at(self) -> float:
        return max(self.output_at, self.cpu_at, self.network_at)


def begun(now: float) -> Vitals:
    """Of an agent that starts, or goes on after it had to wait: nothing is held against it."""
    return Vitals(output_at=now, cpu_at=now, network_at=now, beat_at=now)


def spoke(vitals: Vitals, at: float) -> Vitals:
    """It wrote something."""
    return replace(vitals, output_at=max(vitals.output_at, at))


def felt(vitals: Vitals, beat: Beat, thresholds: Thresholds) -> Vitals:
    """With one more beat. One that is told twice, or late, changes nothing."""
    if beat.seq <= vitals.seq:
        return vitals
    came = replace(
        vitals,
        output_at=max(vitals.output_at, min(beat.output_at or 0.0, beat.at)),
        seq=beat.seq,
        missing=vitals.missing + beat.seq - vitals.seq - 1,
        beat_at=max(vitals.beat_at, beat.at),
    )
    if came.sampled_at is not None and beat.at - came.sampled_at < _SHORTEST_SAMPLE_S:
        return came
    return _sampled(came, beat, thresholds)


def missed(vitals: Vitals) -> Vitals:
    """Nobody answered, or too late."""
    return replace(vitals, seq=vitals.seq + 1, missing=vitals.missing + 1)


def _sampled(vitals: Vitals, beat: Beat, thresholds: Thresholds) -> Vitals:
    """Counters compared with the sample before. One that fell began anew: somebody works."""
    took_s = beat.at - vitals.sampled_at if vitals.sampled_at is not None else math.inf
    worked = _grew(vitals.cpu_s, beat.cpu_s, thresholds.cpu_floor * took_s)
    moved = _grew(vitals.network_bytes, beat.network_bytes, thresholds.network_floor * took_s)
    return replace(
        vitals,
        cpu_at=max(vitals.cpu_at, beat.at) if worked else vitals.cpu_at,
        network_at=max(vitals.network_at, beat.at) if moved else vitals.network_at,
        sampled_at=beat.at,
        cpu_s=beat.cpu_s,
        network_bytes=beat.network_bytes,
    )


def _grew(before: float | None, after: float | None, floor: float) -> bool:
    if before is None or after is None:
        return False
    return after < before or (after > before and after - before >= floor)


class Standing(StrEnum):
    """How an agent is."""

    WORKING = "working"
    QUIET = "quiet"
    """It says nothing, yet it works or may just have stopped to."""
    STUCK = "stuck"
    """No output, no CPU and no network for as long as the first step on the ladder says."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """How an agent is, since when, and why that is thought."""

    standing: Standing
    silent_s: float = 0.0
    """Since any sign of life."""
    since: float = 0.0
    """The last one: the same for as long as this silence lasts."""
    why: str = ""


def diagnose(vitals: Vitals, now: float, thresholds: Thresholds) -> Diagnosis:
    silent_s = max(0.0, now - vitals.alive_at)
    first = next((s for s in (r.after_s(thresholds) for r in LADDER) if s), math.inf)
    if silent_s >= first:
        why = f"no output, no CPU and no network for {lasting(silent_s)}"
        return Diagnosis(Standing.STUCK, silent_s, vitals.alive_at, why)
    wordless_s = now - vitals.output_at
    if wordless_s >= thresholds.quiet_after_s:
        busy = "CPU" if vitals.cpu_at >= vitals.network_at else "network"
        why = f"no output for {lasting(wordless_s)}; {busy} {lasting(silent_s)} ago"
        return Diagnosis(Standing.QUIET, silent_s, vitals.alive_at, why)
    return Diagnosis(Standing.WORKING, silent_s, vitals.alive_at)


def due(silent_s: float, thresholds: Thresholds) -> Rung | None:
    """How far up the ladder a silence leads."""
    reached = [r for r in LADDER if r.after_s(thresholds) and silent_s >= r.after_s(thresholds)]
    return reached[-1] if reached else None


_PULSES = tuple(Pulse)


def pulse(vitals: Vitals, now: float, thresholds: Thresholds) -> Pulse:
    """By how long a beat lasts, never by how often somebody looks."""
    missed = int(max(0.0, now - vitals.beat_at) // thresholds.beat_lasts_s)
    return _PULSES[min(missed, len(_PULSES) - 1)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an agent may be started again, and when."""

    is_allowed: bool
    wait_s: float = 0.0
    why: str = ""


def may_restart(restarts: Iterable[float], now: float, thresholds: Thresholds) -> Verdict:
    """After how long; or never, because it had its share."""
    recent = sorted(min(at, now) for at in restarts if at > now - HOUR)
    most = thresholds.restarts_per_hour
    if len(recent) >= most:
        times = "1 restart" if most == 1 else f"{most} restarts"
        why = f"{times} within an hour" if most else "restarts are turned off"
        return Verdict(is_allowed=False, why=why)
    if not recent:
        return Verdict(is_allowed=True)
    pause_s = thresholds.restart_cooldown_s
    for _ in recent[1:]:
        pause_s = min(pause_s * thresholds.restart_backoff, HOUR)
    wait_s = max(0.0, pause_s - (now - recent[-1]))
    why = f"it was restarted {lasting(now - recent[-1])} ago" if wait_s else ""
    return Verdict(is_allowed=True, wait_s=wait_s, why=why)


@dataclass(frozen=True, slots=True)
class Treatment:
    """What is to be done about an agent now."""

    measure: Measure
    why: str
    wait_s: float = 0.0
    """For RESTART: not before that."""


def treat(
    vitals: Vitals, restarts: Iterable[float], now: float, thresholds: Thresholds
) -> Treatment | None:
    """The step that is due; None for an agent that works. What was nudged or asked about in this
    silence is for the caller to know: `alive_at` is the same for as long as it lasts."""
    found = diagnose(vitals, now, thresholds)
    rung = due(found.silent_s, thresholds)
    measure, why = (rung.measure, found.why) if rung else (None, "")
    if pulse(vitals, now, thresholds) is Pulse.LOST and thresholds.restart_after_s:
        measure, why = Measure.RESTART, f"no heartbeat for {lasting(now - vitals.beat_at)}"
    if measure is None:
        return None
    if measure is not Measure.RESTART:
        return Treatment(measure, why)
    verdict = may_restart(restarts, now, thresholds)
    if not verdict.is_allowed:
        return Treatment(Measure.FAIL, f"{why}, after {verdict.why}")
    return Treatment(measure, why, verdict.wait_s)


def lasting(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"
