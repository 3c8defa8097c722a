"""The Docker provider keeps the contract of every provider, with either form of the guest."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.ports.provider import Capabilities, Isolation, PauseKind
from paddock.testing.conformance import Terms
from paddock.testing.conformance.suite import ProviderConformance
from tests.adapters.providers.docker.conftest import BASE, Installation, source

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
)
Open = Callable[[], Awaitable[DockerProvider]]


class DockerConformance:
    """What both forms share: an installation of its own for each class."""

    guest: ClassVar[Literal["joined", "packed"]]

    @pytest.fixture(scope="class")
    @classmethod
    async def open_provider(
        cls, engine_host: str, base_image: str, short_directory: Path
    ) -> AsyncIterator[Open]:
        del base_image
        installation = Installation(engine_host, short_directory)

        async def open_it() -> DockerProvider:
            return await DockerProvider.open(installation.config(guest=cls.guest), source)

        yield open_it
        await installation.empty()
        assert await installation.left() == {}


class TestJoined(DockerConformance, ProviderConformance):
    guest = "joined"
    terms = Terms(template=BASE, image="docker:paddock/base:test-base")
    claims = CLAIMS

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def root_only(cls, need: Any) -> None:
        if os.geteuid() != 0:
            need("root", "a guest is joined by root on the engine's own host")


class TestPacked(DockerConformance, ProviderConformance):
    guest = "packed"
    terms = Terms(template=BASE, image="docker:paddock/base:test-base")
    claims = CLAIMS
