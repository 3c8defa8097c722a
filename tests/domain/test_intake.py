"""Numbers of a source: each is taken once, whatever the order, and what is missing is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.errors import InvalidRequest, LimitExceeded
from paddock.domain.event import EventKind, check_custom_kind
from paddock.domain.intake import SourceState, check_source, taken

NEW = SourceState("sbx_1", "agent")


@given(st.lists(st.integers(1, 60), max_size=200))
def test_each_number_is_taken_once_and_the_gaps_are_what_is_missing(numbers):
    state, kept = NEW, []
    for number in numbers:
        after = taken(state, number)
        assert (after is None) == (number in kept)
        if after is not None:
            kept.append(number)
            state = after
    assert sorted(kept) == sorted(set(numbers))
    missing = [n for first, last in state.missing for n in range(first, last + 1)]
    assert missing == sorted(set(range(1, max(kept, default=0) + 1)) - set(kept))
    assert all(first <= last for first, last in state.missing)
    assert state.last_seq == max(kept, default=0)


def test_gaps_without_end_are_refused():
    state = NEW
    with pytest.raises(LimitExceeded, match="beginning with 1"):
        for number in range(2, 1000, 2):
            state = taken(state, number)


@pytest.mark.parametrize("kind", [*EventKind, "custom", "custom.", "custom.A", "custom.a b", "x.y"])
def test_nobody_tells_of_what_is_ours(kind):
    with pytest.raises(InvalidRequest):
        check_custom_kind(kind)


def test_kinds_and_sources_that_are_fine():
    assert check_custom_kind("custom.agent.tool_used") == "custom.agent.tool_used"
    assert check_source("agent-7:main.2") == "agent-7:main.2"
    for wrong in ("", "-a", "a b", "é", "a" * 101, "a\n"):
        with pytest.raises(InvalidRequest):
            check_source(wrong)
