"""What is taken for an outage, how long it is remembered, and what binds a sandbox."""

import pytest

from paddock.domain.errors import QuotaExceeded, TimedOut, Unavailable, leaves
from paddock.domain.outage import bound_by, is_outage, lasting, retold

FREE = {"provider": "", "snapshot": "", "source": "", "volumes": False}


@pytest.mark.proves("P15")
def test_only_a_provider_that_does_not_answer_is_away():
    away = [kind for kind in leaves() if is_outage(kind("x"))]
    assert set(away) == {Unavailable, TimedOut}


def test_an_outage_that_goes_on_began_when_it_began():
    first = lasting(None, "far", Unavailable("one"), now=100.0, lasts_s=60.0)
    later = lasting(first, "far", TimedOut("two"), now=170.0, lasts_s=60.0)
    assert (first.since, first.ask_at) == (100.0, 160.0)
    assert (later.since, later.ask_at, later.error.message) == (100.0, 230.0, "two")


def test_an_error_that_is_told_again_is_of_the_same_kind_and_says_more():
    error = QuotaExceeded("full", remediation="wait", retry_after_s=9.0)
    told = retold(error, "far", "nothing else helps")
    assert type(told) is QuotaExceeded
    assert told.message == "provider far is away: full; nothing else helps"
    assert (told.remediation, told.retry_after_s) == ("wait", 9.0)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({}, ""),
        ({"provider": "far"}, "provider far was named"),
        ({"snapshot": "mine"}, "snapshot mine is there"),
        ({"source": "sbx_1"}, "the sandbox it is a fork of is there"),
        ({"volumes": True}, "its volumes are there"),
    ],
)
def test_what_is_bound_to_a_provider_says_by_what(wish, said):
    assert bound_by(**FREE | wish) == said
