"""The four layers together, in the order that their docstring explains."""

import pytest

from paddock.adapters.providers.layers import standard_layers
from paddock.domain.errors import NotFound, Unavailable, Unsupported
from paddock.ports.provider import Provider

from .scripted import CALLS, REF, SEEN, use


@pytest.fixture
def told():
    return []


@pytest.fixture
def layered(provider, clock, told):
    return standard_layers(
        provider, clock=clock, observer=lambda *call: told.append((call[1], call[3]))
    )


@pytest.mark.proves("P1")
@pytest.mark.parametrize("operation", CALLS)
async def test_every_method_works_through_all_layers(layered, provider, told, operation):
    assert isinstance(layered, Provider)
    assert await use(layered, operation) == await use(provider, operation)
    assert told == [(operation, "ok")]


async def test_every_attempt_is_measured_so_that_a_flaky_provider_shows(layered, provider, told):
    provider.script = [Unavailable("once")]
    assert await use(layered, "observe") == SEEN
    assert told == [("observe", "provider_unavailable"), ("observe", "ok")]


async def test_a_refusal_is_no_fault_of_the_provider_and_is_not_repeated(unable, clock, told):
    layered = standard_layers(unable, clock=clock, observer=lambda *call: told.append(call))
    with pytest.raises(Unsupported):
        await use(layered, "pause", REF)
    assert (unable.calls, told, clock.slept) == ([], [], [])


async def test_a_permanent_error_reaches_the_caller_after_one_attempt(layered, provider, told):
    provider.script = [NotFound("gone")]
    with pytest.raises(NotFound, match="gone"):
        await use(layered, "observe")
    assert told == [("observe", "not_found")]
