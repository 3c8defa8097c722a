"""Memory pressure and admission."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.errors import Unavailable
from paddock.domain.pressure import Band, Candidate, Memory, admit, band, victims


def memory(free_percent: float) -> Memory:
    return Memory(10_000, 100 * free_percent)


@pytest.mark.parametrize(
    ("free", "current", "expected"),
    [
        (15.0, Band.NORMAL, Band.NORMAL),
        (14.9, Band.NORMAL, Band.MODERATE),
        (16.9, Band.MODERATE, Band.MODERATE),
        (17.0, Band.MODERATE, Band.NORMAL),
        (9.9, Band.MODERATE, Band.HIGH),
        (11.9, Band.HIGH, Band.HIGH),
        (12.0, Band.HIGH, Band.MODERATE),
        (4.9, Band.NORMAL, Band.CRITICAL),
        (6.9, Band.CRITICAL, Band.CRITICAL),
        (7.0, Band.CRITICAL, Band.HIGH),
        (50.0, Band.CRITICAL, Band.NORMAL),
    ],
)
def test_bands_are_entered_at_15_10_and_5_percent_and_left_two_above(free, current, expected):
    assert band(memory(free), current) is expected


@given(free=st.floats(0, 100), current=st.sampled_from(Band))
def test_a_band_that_was_found_is_found_again(free, current):
    found = band(memory(free), current)
    assert band(memory(free), found) is found


def candidate(name: str, active_at: float = 0.0, **more: object) -> Candidate:
    values = {"memory_mib": 100.0, "working": False, "always_on": False, **more}
    return Candidate(name, active_at, **values)  # type: ignore[arg-type]


def names(found: tuple[Candidate, ...]) -> list[str]:
    return [one.id for one in found]


def test_the_longest_idle_goes_first_and_no_more_than_needed():
    boxes = [candidate("new", 30), candidate("old", 10), candidate("mid", 20)]
    # 17 % are wanted back: 1,700 of 10,000 MiB, and 1,550 are there.
    assert names(victims(boxes, Band.MODERATE, Memory(10_000, 1550))) == ["old", "mid"]
    assert victims(boxes, Band.NORMAL, Memory(10_000, 10)) == ()


def test_always_on_and_working_ones_are_respected_until_it_gets_worse():
    boxes = [
        candidate("heavy", working=True, memory_mib=900.0),
        candidate("light", working=True, memory_mib=100.0),
        candidate("kept", always_on=True),
        candidate("idle", 99),
    ]
    nothing_left = Memory(10_000, 0)
    assert names(victims(boxes, Band.MODERATE, nothing_left)) == ["idle"]
    assert names(victims(boxes, Band.HIGH, nothing_left)) == ["idle", "kept"]
    assert names(victims(boxes, Band.CRITICAL, nothing_left)) == ["idle", "kept", "light", "heavy"]


def test_admission_counts_what_is_promised_already_and_says_what_it_measured():
    admit(Memory(10_000, 2000), 1200, 800)
    with pytest.raises(Unavailable, match="799 MiB of memory are left") as refused:
        admit(Memory(10_000, 2000), 1201, 800)
    assert refused.value.retryable
    assert refused.value.retry_after_s == 30
