"""Nothing hangs for ever."""

from dataclasses import replace

import pytest

from paddock.adapters.providers.layers import Bound, Layered, Operation
from paddock.domain.errors import NotFound, TimedOut
from paddock.domain.sandbox import Resources, SandboxState

from .scripted import CALLS, SEEN, use

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


@pytest.mark.parametrize(
    ("operation", "state", "more"),
    [
        ("archive", SandboxState.STOPPED, True),
        ("start", SandboxState.ARCHIVED, True),
        ("start", SandboxState.STOPPED, False),
        ("observe", SandboxState.ARCHIVED, False),
    ],
)
async def test_a_larger_disk_has_more_time_to_be_packed_and_unpacked(
    provider, operation, state, more
):
    provider.seen = replace(SEEN, state=state, resources=Resources(disk_mib=16))
    bound = Bound(SOON, provider=provider)
    provider.script = [0.0, 0.1] if operation != "observe" else [0.1]
    layered = Layered(provider, bound)
    if more:  # 16 MiB are good for more than a second
        await use(layered, operation)
    else:
        with pytest.raises(TimedOut, match=r"within 0\.02 s"):
            await use(layered, operation)


@pytest.mark.parametrize("fault", [NotFound("gone"), 3600.0], ids=repr)
async def test_a_size_that_cannot_be_learnt_is_no_reason_to_fail(provider, fault):
    provider.script = [fault, 0.0]
    await use(Layered(provider, Bound(SOON, provider=provider)), "archive")


@pytest.mark.parametrize("error", [NotFound("no"), TimeoutError("the provider's own")], ids=repr)
async def test_an_error_of_the_provider_is_passed_on_as_it_is(provider, error):
    provider.script = [error]
    with pytest.raises(type(error)) as caught:
        await use(Layered(provider, Bound()), "observe")
    assert caught.value is error
