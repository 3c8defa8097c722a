"""The local provider keeps the contract with every runtime."""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import ClassVar

import pytest

from paddock.adapters.providers.local import runtime
from paddock.adapters.providers.local.abilities import GVISOR
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.ports.provider import Capabilities, Isolation, PauseKind, Provider, SandboxSpec
from paddock.testing.conformance import Open, Terms
from paddock.testing.conformance.suite import ProviderConformance
from tests import oci_image
from tests.conftest import Need
from tests.engines import AGENTS, DATA, local_config

IMAGE = DATA.with_name("test-image")

FENCED = Capabilities(
    isolation=Isolation.CONTAINER,
    pause=PauseKind.MEMORY,
    stop=True,
    archive=True,
    sleeping_disk=True,
    snapshot=True,
    snapshot_ignore=True,
    fork=True,
    egress=True,
    live_egress=True,
    allowlist=True,
    any_image=True,
    late_ports=True,
    metrics=True,
    disk_limit=True,
    volumes=True,
    agents=True,
)


class LocalConformance(ProviderConformance):
    """What the runtimes have in common: the installation that tests share."""

    runtime: ClassVar[str]
    terms = Terms("base", image=f"oci:{IMAGE}:latest", agents=AGENTS)
    claims = FENCED

    @pytest.fixture(scope="class")
    @classmethod
    def open_provider(cls, need: Need) -> Open:
        found = runtime.installed().get(cls.runtime)
        if found is None:
            need(cls.runtime, "not installed")
        if why := runtime.outdated(found):
            need(cls.runtime, why)

        async def open_it() -> Provider:
            provider = await LocalProvider.open(local_config(runtime=cls.runtime), agents=AGENTS)
            await make_image(provider)
            return provider

        return open_it


async def make_image(provider: LocalProvider) -> None:
    """The image is the base template in another form."""
    with IMAGE.with_suffix(".lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        if not IMAGE.exists():
            seen = await provider.create(f"image-{os.getpid()}", SandboxSpec(template="base"))
            await provider.destroy(seen.ref)
            base = provider.templates.recipe("base")
            built = await provider.templates.ensure(base, setup_runner=_no_setup)
            await asyncio.to_thread(oci_image.build, built.lower, IMAGE)


async def _no_setup(*_: object) -> Path:
    raise AssertionError("base has no set-up commands")


class TestCrun(LocalConformance):
    """The runtime that is taken unless told otherwise."""

    runtime = "crun"


class TestRunc(LocalConformance):
    """The fallback."""

    runtime = "runc"


class TestRunsc(LocalConformance):
    """gVisor, for hostile code; the guest is packed."""

    runtime = "runsc"
    claims = GVISOR
