"""What is due when."""

import math

import pytest

from paddock.domain.errors import InvalidRequest
from paddock.domain.lifetime import Action, Clockwork, Due, Lifetime, OnTimeout, due, idle_at
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState

S = SandboxState
RESTING = [S.CREATING, S.ARCHIVED, S.FAILED, S.DELETING, S.DELETED]


def test_a_running_sandbox_without_work_is_stopped_after_its_idle_time():
    lifetime, clock = Lifetime(idle_timeout_s=60), Clockwork(active_at=1000)
    assert due(S.RUNNING, lifetime, clock, 1059.9) is None
    assert due(S.RUNNING, lifetime, clock, 1060) == Due(Action.STOP, Reason.IDLE)
    assert due(S.PAUSED, lifetime, clock, 9999) is None


@pytest.mark.proves("L9")
def test_keep_alive_and_always_on_hold_idleness_off_but_no_deadline():
    clock = Clockwork(active_at=1000, keep_alive_until=2000)
    assert idle_at(Lifetime(idle_timeout_s=60), clock) == 2000
    assert idle_at(Lifetime(idle_timeout_s=5000), clock) == 6000
    always = Lifetime(always_on=True)
    assert idle_at(always, clock) is None
    late = Clockwork(active_at=1000, expires_at=1500, keep_alive_until=2000)
    assert due(S.RUNNING, always, late, 1500) == Due(Action.DELETE, Reason.DEADLINE)


@pytest.mark.parametrize(
    ("wish", "state", "expected"),
    [
        (OnTimeout.KILL, S.RUNNING, Action.DELETE),
        (OnTimeout.KILL, S.PAUSED, Action.DELETE),
        (OnTimeout.PAUSE, S.RUNNING, Action.PAUSE),
        (OnTimeout.PAUSE, S.PAUSED, None),
        (OnTimeout.STOP, S.RUNNING, Action.STOP),
        (OnTimeout.STOP, S.PAUSED, Action.STOP),
        (OnTimeout.STOP, S.STOPPED, None),
    ],
)
def test_at_the_deadline_happens_what_was_asked_for(wish, state, expected):
    lifetime = Lifetime(on_timeout=wish, archive_after_s=None)
    found = due(state, lifetime, Clockwork(active_at=999, expires_at=1000), 1000)
    assert (found and found.action) == expected
    assert found is None or found.reason is Reason.DEADLINE


def test_a_stopped_sandbox_is_archived_when_nobody_came_back():
    clock = Clockwork(active_at=0, stopped_at=1000)
    lifetime = Lifetime(archive_after_s=500)
    assert due(S.STOPPED, lifetime, clock, 1499) is None
    assert due(S.STOPPED, lifetime, clock, 1500) == Due(Action.ARCHIVE, Reason.IDLE)
    assert due(S.STOPPED, Lifetime(archive_after_s=None), clock, 1e12) is None


@pytest.mark.parametrize("state", RESTING)
def test_nothing_is_ever_due_in_any_other_state(state):
    clock = Clockwork(active_at=0, expires_at=1, stopped_at=1)
    assert due(state, Lifetime(), clock, 1e12) is None


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 1e12])
@pytest.mark.parametrize("name", ["timeout_s", "idle_timeout_s", "archive_after_s"])
def test_a_time_that_makes_no_sense_is_refused_by_name(name, value):
    with pytest.raises(InvalidRequest, match=name):
        Lifetime(**{name: value})


def test_what_is_not_said_of_a_lifetime_stays_as_it_was():
    before = Lifetime(60, OnTimeout.PAUSE, 120, 180, always_on=True)
    assert before.changed({}) == before
    assert before.changed({"timeout_s": 90}) == Lifetime(90, OnTimeout.PAUSE, 120, 180, True)
    assert before.changed({"idle_timeout_s": None}).idle_timeout_s is None
