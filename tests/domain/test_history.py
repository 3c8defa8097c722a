"""Events as steps: what repeats is counted, an end belongs to its start, cuts lose nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.event import Event
from paddock.domain.history import first_steps, folded, is_quiet, last_steps


def told(*kinds, data=None):
    """One event a second."""
    return [
        Event("tem_1", kind, "sbx_1", float(n), dict(data or {}), "tok_1", seq=n)
        for n, kind in enumerate(kinds, start=1)
    ]


def shown(steps):
    return [(step.kind, step.count) for step in steps]


@pytest.mark.proves("U9")
def test_what_is_periodic_is_told_once_between_two_steps():
    beat, usage = "custom.agent.heartbeat", "custom.metrics"
    events = told("sandbox.running", *(beat, usage) * 50, "custom.step", beat, beat)
    steps = folded(events)
    assert shown(steps) == [
        ("sandbox.running", 1),
        (beat, 50),
        (usage, 50),
        ("custom.step", 1),
        (beat, 2),
    ]
    assert [step.quiet for step in steps] == [False, True, True, False, True]
    assert (steps[1].at, steps[1].until, steps[1].first_seq, steps[1].last_seq) == (2, 100, 2, 100)
    assert steps[3].after_s == 102.0 - 3.0


@pytest.mark.proves("U9")
def test_what_repeats_the_step_before_is_counted_and_what_differs_is_not():
    events = told("custom.retry", "custom.retry", "custom.retry", "custom.step", "custom.retry")
    assert shown(folded(events)) == [("custom.retry", 3), ("custom.step", 1), ("custom.retry", 1)]
    other = [Event("tem_1", "custom.retry", "sbx_1", 9.0, {"why": "x"}, "tok_1", seq=9)]
    assert shown(folded([*events, *other]))[-2:] == [("custom.retry", 1), ("custom.retry", 1)]


@pytest.mark.proves("U9")
def test_a_commands_end_belongs_to_its_start():
    began = Event("t", "command.started", "s", 1.0, {"command": "cmd_1", "program": "sh"}, "a", 1)
    between = Event("t", "custom.step", "s", 2.0, {}, "a", 2)
    ended = Event("t", "command.ended", "s", 4.0, {"command": "cmd_1", "exit_code": 3}, "a", 3)
    first, second = folded([began, between, ended])
    assert (first.data, first.until, first.count) == (
        {"command": "cmd_1", "program": "sh", "exit_code": 3},
        4.0,
        1,
    )
    assert second.kind == "custom.step"
    (alone,) = folded([ended])
    assert alone.kind == "command.ended"


def test_kinds_are_quiet_by_their_last_word():
    assert is_quiet("custom.agent.ping")
    assert not is_quiet("custom.ping.failed")
    assert not is_quiet("sandbox.stopped")


KINDS = st.sampled_from(["custom.a", "custom.b", "custom.ping", "custom.tick", "sandbox.running"])


@pytest.mark.proves("U9")
@given(st.lists(KINDS, min_size=1, max_size=80), st.integers(1, 7))
def test_pages_tell_every_event_once_in_either_direction(kinds, limit):
    events = told(*kinds)
    forwards, after = [], 0
    while rest := [event for event in events if event.seq > after]:
        steps, after = first_steps(rest, limit)
        assert 1 <= len(steps) <= limit
        forwards += steps
    backwards, before = [], len(events) + 1
    while rest := [event for event in events if event.seq < before]:
        steps = last_steps(rest, limit)
        assert 1 <= len(steps) <= limit
        backwards = [*steps, *backwards]
        before = steps[0].first_seq
    for steps in (forwards, backwards):
        assert sum(step.count for step in steps) == len(events)
        assert [step.first_seq for step in steps] == sorted(step.first_seq for step in steps)
