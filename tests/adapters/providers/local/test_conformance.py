"""The local provider keeps the contract with every runtime."""

from typing import ClassVar

import pytest

from paddock.adapters.providers.local import runtime
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.ports.provider import Capabilities, Isolation, PauseKind, Provider
from paddock.testing.conformance import Open, Terms
from paddock.testing.conformance.suite import ProviderConformance
from tests.conftest import Need
from tests.engines import local_config

FENCED = Capabilities(
    isolation=Isolation.CONTAINER,
    pause=PauseKind.MEMORY,
    stop=True,
    snapshot=True,
    fork=True,
    egress=True,
    live_egress=True,
    any_image=True,
    late_ports=True,
    metrics=True,
    disk_limit=True,
)


class LocalConformance(ProviderConformance):
    """What the runtimes have in common: the installation that tests share."""

    runtime: ClassVar[str]
    terms = Terms("base")
    claims = FENCED

    @pytest.fixture(scope="class")
    @classmethod
    def open_provider(cls, need: Need) -> Open:
        if cls.runtime not in runtime.installed():
            need(cls.runtime, "not installed")

        async def open_it() -> Provider:
            return await LocalProvider.open(local_config(runtime=cls.runtime))

        return open_it


class TestCrun(LocalConformance):
    """The runtime that is taken unless told otherwise."""

    runtime = "crun"


class TestRunc(LocalConformance):
    """The fallback."""

    runtime = "runc"
