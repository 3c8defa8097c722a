"""Signs of life, and what follows when there are none."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.errors import InvalidRequest
from paddock.domain.vitals import (
    HOUR,
    LADDER,
    Beat,
    Measure,
    Pulse,
    Standing,
    Thresholds,
    Vitals,
    begun,
    diagnose,
    due,
    felt,
    may_restart,
    pulse,
    spoke,
    treat,
)

USUAL = Thresholds()
NOW = 1_000_000.0
moments = st.floats(0, 10 * HOUR).map(lambda s: NOW + s)


@st.composite
def runs(draw: st.DrawFn) -> list[Beat]:
    """Beats of one run, in order, of a machine whose counters only grow."""
    beats, at, cpu, network = [], NOW, 0.0, 0
    for seq in range(1, draw(st.integers(1, 30)) + 1):
        at += draw(st.floats(0.1, 30))
        cpu += draw(st.sampled_from((0.0, 0.001, 0.5, 5.0)))
        network += draw(st.sampled_from((0, 10, 100_000)))
        said = draw(st.one_of(st.none(), st.just(at)))
        beats.append(Beat(seq, at, said, cpu, network))
    return beats


def after(beats: list[Beat], vitals: Vitals | None = None) -> Vitals:
    vitals = begun(NOW) if vitals is None else vitals
    for beat in beats:
        vitals = felt(vitals, beat, USUAL)
    return vitals


def idle(minutes: float, every_s: float = 5.0) -> list[Beat]:
    """An agent that does nothing: its timers take 0.2 % of a core."""
    count = int(minutes * 60 / every_s)
    return [Beat(n, NOW + n * every_s, NOW, 0.002 * n * every_s, 500) for n in range(1, count + 1)]


@pytest.mark.proves("H5")
def test_no_output_and_no_cpu_and_no_network_is_stuck() -> None:
    vitals = after(idle(6))
    found = diagnose(vitals, NOW + 360, USUAL)
    assert found.standing is Standing.STUCK
    assert found.why == "no output, no CPU and no network for 6 min"


@pytest.mark.proves("H5")
@pytest.mark.parametrize(
    "busy",
    [
        lambda beat: replace(beat, cpu_s=beat.at * 0.1),
        lambda beat: replace(beat, network_bytes=int(beat.at) * 1000),
        lambda beat: replace(beat, output_at=beat.at),
    ],
    ids=["cpu", "network", "output"],
)
def test_any_one_sign_of_life_is_enough_not_to_be_stuck(busy: "object") -> None:
    vitals = after([busy(beat) for beat in idle(60)])  # type: ignore[operator]
    assert diagnose(vitals, NOW + HOUR, USUAL).standing is not Standing.STUCK


def test_a_silent_build_is_quiet_and_says_what_it_does() -> None:
    vitals = after([replace(beat, cpu_s=beat.at * 0.9) for beat in idle(10)])
    found = diagnose(vitals, NOW + 600, USUAL)
    assert found.standing is Standing.QUIET
    assert found.why == "no output for 10 min; CPU 0 s ago"


@given(runs(), st.floats(0, HOUR))
def test_stuck_is_exactly_no_sign_for_as_long_as_the_first_rung(
    beats: list[Beat], later: float
) -> None:
    vitals = after(beats)
    now = beats[-1].at + later
    found = diagnose(vitals, now, USUAL)
    signs = (vitals.output_at, vitals.cpu_at, vitals.network_at)
    assert (found.standing is Standing.STUCK) == all(
        now - sign >= USUAL.nudge_after_s for sign in signs
    )


@given(runs(), st.data())
def test_a_beat_told_twice_or_late_changes_nothing(beats: list[Beat], data: st.DataObject) -> None:
    vitals = after(beats)
    assert felt(vitals, data.draw(st.sampled_from(beats)), USUAL) == vitals


@given(runs())
def test_signs_of_life_never_go_back_nor_into_the_future(beats: list[Beat]) -> None:
    vitals = begun(NOW)
    for beat in beats:
        later = felt(vitals, beat, USUAL)
        assert vitals.alive_at <= later.alive_at <= beat.at
        vitals = later


@given(runs(), st.data())
@pytest.mark.proves("H1")
def test_beats_that_never_came_are_counted(beats: list[Beat], data: st.DataObject) -> None:
    dropped = data.draw(st.sets(st.sampled_from(beats)))
    came = [beat for beat in beats if beat not in dropped]
    unseen = sum(beat.seq < came[-1].seq for beat in dropped) if came else 0
    assert after(came).missing == unseen


@given(runs(), st.integers(1, 29))
def test_an_agent_that_was_interrupted_between_two_beats_goes_on_where_it_was(
    beats: list[Beat], cut: int
) -> None:
    halfway = after(beats[:cut])
    assert after(beats[cut:], halfway) == after(beats)


def test_a_counter_that_fell_is_a_process_that_began() -> None:
    vitals = after([*idle(4), Beat(49, NOW + 245, NOW, 0.0, 500)])
    assert vitals.cpu_at == NOW + 245


def test_counters_that_nobody_has_are_no_sign_of_anything() -> None:
    vitals = after([Beat(n, NOW + n * 5, None, None, None) for n in range(1, 100)])
    assert vitals.alive_at == NOW


@pytest.mark.proves("H2")
@pytest.mark.parametrize(
    ("late_s", "found"),
    [(0, "steady"), (14.9, "steady"), (15, "late"), (30, "degraded"), (45, "lost"), (9e9, "lost")],
)
def test_beats_are_missed_by_how_long_one_lasts(late_s: float, found: str) -> None:
    assert pulse(begun(NOW), NOW + late_s, USUAL) is Pulse(found)


@given(moments, moments)
def test_a_clock_that_goes_back_loses_no_beat(at: float, now: float) -> None:
    if now <= at:
        assert pulse(begun(at), now, USUAL) is Pulse.STEADY
        assert diagnose(begun(at), now, USUAL).standing is Standing.WORKING


@pytest.mark.proves("H4")
def test_three_restarts_within_an_hour_and_then_never() -> None:
    restarts = (NOW - 3000, NOW - 2000, NOW - 1000)
    verdict = may_restart(restarts, NOW, USUAL)
    assert (verdict.is_allowed, verdict.why) == (False, "3 restarts within an hour")
    assert may_restart(restarts, NOW + 601, USUAL).is_allowed


@pytest.mark.proves("H4")
@pytest.mark.parametrize(("earlier", "wait_s"), [((), 0), ((5,), 55), ((300, 10), 110)])
def test_each_restart_waits_longer(earlier: tuple[float, ...], wait_s: float) -> None:
    verdict = may_restart([NOW - ago for ago in earlier], NOW, USUAL)
    assert verdict.is_allowed
    assert verdict.wait_s == wait_s


thresholds = st.builds(
    Thresholds,
    restarts_per_hour=st.integers(0, 2000),
    restart_cooldown_s=st.floats(0, 2 * HOUR),
    restart_backoff=st.floats(1, 1e6),
)


@pytest.mark.proves("H4")
@given(st.lists(moments, max_size=50), moments, thresholds)
def test_whoever_obeys_the_verdict_never_restarts_too_often(
    restarts: list[float], now: float, limits: Thresholds
) -> None:
    verdict = may_restart(restarts, now, limits)
    recent = [at for at in restarts if now - HOUR < at]
    assert verdict.is_allowed == (len(recent) < limits.restarts_per_hour)
    assert 0 <= verdict.wait_s <= max(HOUR, limits.restart_cooldown_s)
    if verdict.is_allowed and recent:
        again = now + verdict.wait_s
        least = min(limits.restart_cooldown_s, HOUR)
        assert again - min(max(recent), now) >= least - 1e-6


@given(st.floats(0, 2 * HOUR))
def test_the_ladder_is_climbed_step_by_step(silent_s: float) -> None:
    reached = [rung.measure for rung in LADDER if rung.after_s(USUAL) <= silent_s]
    found = due(silent_s, USUAL)
    assert (found.measure if found else None) == (reached[-1] if reached else None)


def test_a_rung_of_0_is_left_out() -> None:
    limits = Thresholds(nudge_after_s=0, ask_after_s=0)
    assert diagnose(begun(NOW), NOW + 899, limits).standing is not Standing.STUCK
    assert due(900, limits) == LADDER[-1]
    nothing = Thresholds(nudge_after_s=0, ask_after_s=0, restart_after_s=0)
    assert treat(spoke(begun(NOW), NOW), (), NOW + 1e6, nothing) is None


@pytest.mark.proves("H4")
def test_what_is_stuck_is_nudged_asked_about_restarted_and_then_fails() -> None:
    alive = begun(NOW)

    def at(minutes: float, *restarts: float) -> tuple[Measure, float] | None:
        now = NOW + minutes * 60
        found = treat(replace(alive, beat_at=now), restarts, now, USUAL)
        return (found.measure, found.wait_s) if found else None

    assert at(4) is None
    assert at(5) == (Measure.NUDGE, 0)
    assert at(10) == (Measure.ASK, 0)
    assert at(15) == (Measure.RESTART, 0)
    assert at(15, NOW + 890) == (Measure.RESTART, 50)
    assert at(15, NOW, NOW, NOW) == (Measure.FAIL, 0)


@pytest.mark.proves("H2")
def test_a_sandbox_that_tells_nothing_any_more_is_not_forgotten() -> None:
    found = treat(begun(NOW), (), NOW + 45, USUAL)
    assert found is not None
    assert (found.measure, found.why) == (Measure.RESTART, "no heartbeat for 45 s")


@pytest.mark.parametrize(
    "wrong",
    [
        {"nudge_after_s": -1.0},
        {"cpu_floor": math.nan},
        {"ask_after_s": math.inf},
        {"nudge_after_s": 900.0, "ask_after_s": 600.0},
        {"restart_backoff": 0.5},
        {"beat_every_s": 30.0},
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest):
        Thresholds(**wrong)  # type: ignore[arg-type]
