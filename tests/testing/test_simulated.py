"""The simulated provider passes every check, so that both sides of each capability are tried."""

from pathlib import Path

import pytest

from paddock.ports.provider import Provider
from paddock.testing.conformance import Open, Terms, pausing, run_conformance
from paddock.testing.conformance.check import checks_of
from paddock.testing.conformance.suite import ProviderConformance
from paddock.testing.reference import TEMPLATE
from paddock.testing.simulated import IMAGE, PausesToDisk, SimulatedProvider


async def test_a_pause_that_keeps_only_the_disk_is_held_to_that(fresh_place: Path) -> None:
    async def open_it() -> Provider:
        return PausesToDisk(fresh_place)

    outcomes = await run_conformance(open_it, TEMPLATE, checks=checks_of(pausing))
    assert [(one.name, one.problem) for one in outcomes if not one.passed] == []
    assert not any(one.refused for one in outcomes)


class TestSimulatedProvider(ProviderConformance):
    """What it claims it does; what it does not claim it refuses."""

    terms = Terms(TEMPLATE, image=IMAGE)
    counts_as_proof = False

    @pytest.fixture(scope="class")
    @classmethod
    def open_provider(cls, place: Path) -> Open:
        async def open_it() -> Provider:
            return SimulatedProvider(place)

        return open_it
