"""The Docker provider keeps the contract of every provider, with either form of the guest."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.ports.provider import Capabilities, Isolation, PauseKind
from paddock.testing.conformance import Terms
from paddock.testing.conformance.suite import ProviderConformance
from tests.adapters.providers.docker.conftest import BASE, Installation, source
from tests.engines import AGENTS

CLAIMS = Capabilities(
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
    disk_limit=False,
    agents=True,
)
Open = Callable[[], Awaitable[DockerProvider]]


class EngineConformance(ProviderConformance):
    """What all of them share: an installation of its own for each class."""

    guest: ClassVar[Literal["joined", "packed"]]
    engine: ClassVar[tuple[str, str]] = ("engine_host", "base_image")
    """The fixtures that give its address and put the template on it."""
    terms = Terms(template=BASE, image="docker:paddock/base:test-base", agents=AGENTS)
    claims = CLAIMS

    @pytest.fixture(scope="class")
    @classmethod
    async def open_provider(
        cls, request: pytest.FixtureRequest, need: Any, short_directory: Path
    ) -> AsyncIterator[Open]:
        if cls.guest == "joined" and os.geteuid() != 0:
            need("root", "a guest is joined by root on the engine's own host")
        host, _ = (request.getfixturevalue(name) for name in cls.engine)
        installation = Installation(host, short_directory)

        async def open_it() -> DockerProvider:
            config = installation.config(guest=cls.guest)
            return await DockerProvider.open(config, source, agents=AGENTS)

        yield open_it
        await installation.empty()
        assert await installation.left() == {}


class TestJoined(EngineConformance):
    guest = "joined"
    claims = replace(CLAIMS, allowlist=True)


@pytest.mark.slow
class TestPacked(EngineConformance):
    guest = "packed"


@pytest.mark.soak
class TestPodman(EngineConformance):
    guest = "joined"
    engine = ("podman_host", "podman_base_image")
    terms = Terms(template=BASE, image="docker:localhost/paddock/base:test-base", agents=AGENTS)
    claims = replace(CLAIMS, live_egress=False)


@pytest.mark.soak
class TestPodmanPacked(TestPodman):
    guest = "packed"
