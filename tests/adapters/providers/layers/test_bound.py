"""Nothing hangs for ever."""

import pytest

from paddock.adapters.providers.layers import Bound, Layered, Operation
from paddock.domain.errors import NotFound, TimedOut

from .scripted import CALLS, use

SOON = dict.fromkeys(Operation, 0.02)


@pytest.mark.parametrize("operation", sorted(set(CALLS) - {"check"}))
async def test_a_call_that_hangs_is_cancelled_and_times_out(provider, operation):
    provider.script = [3600.0]
    with pytest.raises(TimedOut, match=f"scripted did not finish {operation} within 0.02 s"):
        await use(Layered(provider, Bound(SOON)), operation)
    assert provider.cancelled == 1


async def test_a_check_that_hangs_is_cancelled_and_reported_as_a_finding(provider):
    provider.script = [3600.0]
    health = await use(Layered(provider, Bound(SOON)), "check")
    assert provider.cancelled == 1
    assert not health.usable
    assert health.findings[0].found == "no answer within 0.02 s"


async def test_only_the_overridden_deadline_changes(provider):
    provider.script = [0.05, 3600.0]
    layered = Layered(provider, Bound({Operation.OBSERVE: 0.02}))
    await use(layered, "usage")
    with pytest.raises(TimedOut):
        await use(layered, "observe")


@pytest.mark.parametrize("error", [NotFound("no"), TimeoutError("the provider's own")], ids=repr)
async def test_an_error_of_the_provider_is_passed_on_as_it_is(provider, error):
    provider.script = [error]
    with pytest.raises(type(error)) as caught:
        await use(Layered(provider, Bound()), "observe")
    assert caught.value is error
