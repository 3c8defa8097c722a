"""Only what may help is tried again, and only what does no harm twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.adapters.providers.layers import Backoff, Layered, Operation, Retry
from paddock.adapters.providers.layers.retry import IDEMPOTENT
from paddock.domain.errors import PaddockError, QuotaExceeded, TimedOut, Unavailable, leaves
from paddock.ports.clock import Clock
from paddock.ports.provider import Provider

from .scripted import CALLS, use

ALWAYS = [Unavailable(f"failure {n}") for n in range(100)]
PERMANENT = [leaf for leaf in leaves(PaddockError) if not leaf.retryable]


def retrying(
    provider: Provider, clock: Clock, backoff: Backoff | None = None, **options: Any
) -> Layered:
    return Layered(provider, Retry(clock, backoff, jitter=lambda: 1.0, **options))


@pytest.mark.proves("P14")
@pytest.mark.parametrize("operation", sorted(IDEMPOTENT))
async def test_a_passing_fault_of_an_idempotent_call_is_not_seen_by_the_caller(
    provider, clock, operation
):
    expected = await use(provider, operation)
    provider.calls.clear()
    provider.script = [Unavailable("once"), TimedOut("twice")]
    assert await use(retrying(provider, clock), operation) == expected
    assert provider.calls == [operation] * 3


@pytest.mark.proves("P14")
@pytest.mark.parametrize("operation", ["check", "aclose"])
async def test_a_call_that_promises_nothing_about_twice_is_made_once(provider, clock, operation):
    provider.script = [Unavailable("once")]
    with pytest.raises(Unavailable):
        await use(retrying(provider, clock), operation)
    assert provider.calls == [operation]


@pytest.mark.proves("P14")
async def test_which_calls_may_be_repeated_can_be_narrowed(provider, clock):
    provider.script = [Unavailable("once")]
    with pytest.raises(Unavailable):
        await use(retrying(provider, clock, idempotent={Operation.OBSERVE}), "create")
    assert provider.calls == ["create"]


@pytest.mark.proves("P14")
@pytest.mark.parametrize("error", PERMANENT, ids=lambda leaf: leaf.code)
async def test_a_permanent_error_is_not_tried_again(provider, clock, error):
    provider.script = [error("no")]
    with pytest.raises(error):
        await use(retrying(provider, clock), "create")
    assert provider.calls == ["create"]
    assert clock.slept == []


@pytest.mark.proves("P14", "P15")
async def test_a_quota_that_is_used_up_is_said_at_once(provider, clock):
    provider.script = [QuotaExceeded("all 20 machines are taken", retry_after_s=60)]
    with pytest.raises(QuotaExceeded) as told:
        await use(retrying(provider, clock), "create")
    assert (told.value.retryable, told.value.retry_after_s) == (True, 60)
    assert (provider.calls, clock.slept) == (["create"], [])


@pytest.mark.proves("P14")
async def test_the_class_decides_and_not_the_text(provider, clock):
    provider.script = [RuntimeError("temporarily unavailable, please retry")]
    with pytest.raises(RuntimeError):
        await use(retrying(provider, clock), "observe")
    assert provider.calls == ["observe"]


@pytest.mark.proves("P14")
async def test_the_waits_double_up_to_the_longest_and_the_last_error_is_raised(provider, clock):
    provider.script = list(ALWAYS)
    backoff = Backoff(attempts=6, first_s=1, longest_s=5, total_s=60)
    with pytest.raises(Unavailable, match="failure 5"):
        await use(retrying(provider, clock, backoff), "observe")
    assert clock.slept == [1, 2, 4, 5, 5]
    assert len(provider.calls) == 6


@pytest.mark.proves("P14")
async def test_no_attempt_begins_after_the_total_time(provider, clock):
    provider.script = list(ALWAYS)
    backoff = Backoff(attempts=50, first_s=4, longest_s=4, total_s=10)
    with pytest.raises(Unavailable):
        await use(retrying(provider, clock, backoff), "observe")
    assert clock.slept == [4, 4]
    assert clock.now() <= 10


async def test_a_single_attempt_means_no_retry(provider, clock):
    provider.script = [Unavailable("once")]
    with pytest.raises(Unavailable):
        await use(retrying(provider, clock, Backoff(attempts=1)), "observe")
    assert provider.calls == ["observe"]


@pytest.mark.proves("P14")
async def test_a_repeated_listing_lists_nothing_twice(provider, clock):
    whole = await use(provider, "find")
    provider.script = [Unavailable("in the middle")]
    assert await use(retrying(provider, clock), "find") == whole


@given(st.integers(1, 60), st.floats(0, 1))
def test_a_wait_is_never_longer_than_the_longest(failures, share):
    assert 0 <= Backoff().wait(failures, share) <= Backoff().longest_s


def test_every_call_has_a_plan():
    assert set(CALLS) - IDEMPOTENT == {"check", "aclose"}
