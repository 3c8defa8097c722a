"""The reference provider passes every check, alone and with the standard layers around it."""

from pathlib import Path

import pytest

from paddock.adapters.providers.layers import standard_layers
from paddock.ports.clock import SystemClock
from paddock.ports.provider import Capabilities, Isolation, Provider
from paddock.testing.conformance import Open, Terms
from paddock.testing.conformance.suite import ProviderConformance
from paddock.testing.reference import TEMPLATE, ReferenceProvider


class TestReferenceProvider(ProviderConformance):
    """As it is."""

    terms = Terms(TEMPLATE)
    claims = Capabilities(isolation=Isolation.NONE, stop=True, late_ports=True)
    counts_as_proof = False

    @pytest.fixture(scope="class")
    @classmethod
    def open_provider(cls, place: Path) -> Open:
        async def open_it() -> Provider:
            return ReferenceProvider(place)

        return open_it


@pytest.mark.slow
class TestReferenceProviderInLayers(ProviderConformance):
    """Guard, retry, measure and bound around it change nothing of what it promises."""

    terms = Terms(TEMPLATE)
    counts_as_proof = False

    @pytest.fixture(scope="class")
    @classmethod
    def open_provider(cls, place: Path) -> Open:
        async def open_it() -> Provider:
            return standard_layers(
                ReferenceProvider(place), clock=SystemClock(), observer=lambda *_: None
            )

        return open_it
