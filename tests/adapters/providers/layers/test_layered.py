"""Every method of the port goes through the hook, and comes out as it went in."""

import inspect

import pytest

from paddock.adapters.providers.layers import Call, Layered, Operation
from paddock.adapters.providers.layers.bound import DEADLINES
from paddock.adapters.providers.layers.guard import FLAGS
from paddock.adapters.providers.layers.retry import IDEMPOTENT
from paddock.domain.errors import Unavailable
from paddock.ports.provider import Capabilities, Provider

from .scripted import CALLS, use

PORT = {
    name
    for name, member in inspect.getmembers(Provider, inspect.isfunction)
    if not name.startswith("_")
}


class Witness:
    """A layer that only writes down what passes."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def around(self, call, proceed):
        self.calls.append(call)
        return await proceed()


def test_the_operations_are_exactly_the_methods_of_the_port():
    assert set(Operation) == PORT == set(CALLS)


def test_every_operation_has_a_deadline():
    assert set(DEADLINES) == set(Operation)


def test_the_tables_name_only_what_exists():
    assert set(FLAGS.values()) <= set(Capabilities.__dataclass_fields__)
    assert set(FLAGS) | IDEMPOTENT <= set(Operation)


@pytest.mark.proves("P1")
def test_a_layered_provider_is_a_provider(provider):
    layered = Layered(provider, Witness())
    assert isinstance(layered, Provider)
    assert layered.name == provider.name
    assert layered.capabilities is provider.capabilities


@pytest.mark.proves("P1")
@pytest.mark.parametrize("operation", CALLS)
async def test_a_method_passes_the_layer_once_and_returns_what_the_provider_returned(
    provider, operation
):
    witness = Witness()
    direct = await use(provider, operation)
    assert await use(Layered(provider, witness), operation) == direct
    (call,) = witness.calls
    assert (call.provider, call.operation) == ("scripted", operation)
    # stop() has a default that is passed on as well.
    assert tuple(call.arguments.values())[: len(CALLS[operation])] == CALLS[operation]


@pytest.mark.parametrize("operation", ["find", "snapshots"])
async def test_a_listing_that_breaks_off_hands_out_nothing_at_all(provider, operation):
    provider.script = [Unavailable("gone")]
    listing = getattr(Layered(provider, Witness()), operation)(*CALLS[operation])
    with pytest.raises(Unavailable):
        await anext(listing)
