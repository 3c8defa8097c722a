"""A provider that takes no more requests is left alone until it does."""

import math

import pytest

from paddock.adapters.providers.layers import Hold, Layered
from paddock.domain.errors import LimitExceeded, Unavailable
from paddock.ports.provider import Ref

from .scripted import REF, use

OTHER = Ref("scripted", "two")


@pytest.mark.proves("V6", "H9")
@pytest.mark.parametrize("operation", ["endpoint", "guest"])
async def test_nobody_asks_again_before_the_time_that_was_told(provider, clock, operation):
    held = Layered(provider, Hold(clock))
    provider.script = [LimitExceeded("100 an hour", retry_after_s=30.0)]
    arguments = (8080,) if operation == "endpoint" else ()
    for passed, left in ((0, 30), (9.5, 21), (20, 1)):
        clock.advance(passed)
        for ref in (REF, OTHER):
            with pytest.raises(LimitExceeded) as refused:
                await use(held, operation, ref, *arguments)
            assert refused.value.remediation == f"try again in {left} s"
            assert math.ceil(refused.value.retry_after_s or 0) == left
            assert "scripted allows no more requests now: 100 an hour" in refused.value.message
    assert provider.calls == [operation]
    clock.advance(0.6)
    await use(held, operation, REF, *arguments)
    assert provider.calls == [operation] * 2


async def test_one_kind_of_request_is_not_held_up_by_another(provider, clock):
    held = Layered(provider, Hold(clock))
    provider.script = [LimitExceeded("enough", retry_after_s=30.0)]
    with pytest.raises(LimitExceeded):
        await use(held, "endpoint")
    for operation in ("guest", "observe", "stop"):
        await use(held, operation)


@pytest.mark.parametrize("given", [None, math.nan, math.inf, 0.0, -3.0])
async def test_without_a_time_only_that_sandbox_is_left_alone_for_a_moment(provider, clock, given):
    held = Layered(provider, Hold(clock))
    said = {"remediation": "buy a larger plan", "retry_after_s": given}
    provider.script = [LimitExceeded("no more ports", **said)]
    for _ in range(3):
        with pytest.raises(LimitExceeded) as refused:
            await use(held, "endpoint", REF, 8080)
        # It may be for good: nobody is told to try again who was not by the provider.
        assert refused.value.retry_after_s is None
        assert refused.value.remediation == "buy a larger plan"
    await use(held, "endpoint", OTHER, 8080)
    assert provider.calls == ["endpoint"] * 2
    clock.advance(5)
    await use(held, "endpoint", REF, 8080)


async def test_what_is_remembered_is_bounded_in_number_and_time(provider, clock):
    hold = Hold(clock)
    held = Layered(provider, hold)
    for number in range(2500):
        provider.script = [LimitExceeded("full")]
        with pytest.raises(LimitExceeded):
            await use(held, "endpoint", Ref("scripted", str(number)), 8080)
    assert len(hold._limits) <= 1000
    provider.script = [LimitExceeded("full", retry_after_s=1e9)]
    with pytest.raises(LimitExceeded):
        await use(held, "endpoint")
    clock.advance(3600)
    await use(held, "endpoint")


async def test_other_errors_and_other_operations_pass_as_they_are(provider, clock):
    held = Layered(provider, Hold(clock))
    away = Unavailable("away", retry_after_s=30.0)
    provider.script = [away]
    with pytest.raises(Unavailable) as failed:
        await use(held, "endpoint")
    assert failed.value is away
    await use(held, "endpoint")
    full = LimitExceeded("full", retry_after_s=30.0)
    provider.script = [full]
    with pytest.raises(LimitExceeded) as refused:
        await use(held, "start")
    assert refused.value is full
    await use(held, "start")
