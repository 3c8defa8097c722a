"""A task that cannot go on: how long it rests, and when people hear of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.standing import Standing, rest_s, stood

TIMES = st.floats(0, 1e9)


@pytest.mark.proves("P15")
def test_people_are_alerted_once_when_it_has_lasted():
    first, is_time = stood(None, 100.0, 60.0)
    assert (first, is_time) == (Standing(100.0), False)
    assert stood(first, 159.0, 60.0) == (first, False)
    told, is_time = stood(first, 160.0, 60.0)
    assert (told, is_time) == (Standing(100.0, is_told=True), True)
    assert stood(told, 1000.0, 60.0) == (told, False)


@pytest.mark.proves("P15")
def test_the_pauses_grow_to_half_a_minute():
    rests = [rest_s(tries, 0.0) for tries in range(1, 12)]
    assert rests[:4] == [0.5, 1.0, 2.0, 4.0]
    assert rests == sorted(rests)
    assert rests[-1] == rest_s(10**6, 0.0) == 30.0


@given(st.integers(0, 100), TIMES, st.none() | TIMES, st.none() | TIMES)
def test_nobody_rests_for_longer_than_half_a_minute_or_beyond_the_deadline(
    tries, now, deadline, asked_s
):
    rest = rest_s(tries, now, deadline=deadline, asked_s=asked_s)
    assert 0 < rest <= 30.0
    if deadline is not None and deadline > now:
        assert rest <= deadline - now


def test_who_says_when_there_may_be_room_is_not_asked_before():
    assert rest_s(1, 0.0, asked_s=12.0) == 12.0
    assert rest_s(10, 0.0, asked_s=12.0) == 30.0
