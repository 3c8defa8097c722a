"""The local provider keeps the contract with every runtime."""

import asyncio
import fcntl
import os
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from paddock.adapters.providers.local import runtime
from paddock.adapters.providers.local.abilities import GVISOR
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.ports.provider import Capabilities, Isolation, PauseKind, Provider, SandboxSpec
from paddock.testing.conformance import Open, Terms
from paddock.testing.conformance.expect import same
from paddock.testing.conformance.subject import Subject
from paddock.testing.conformance.suite import ProviderConformance
from tests import oci_image
from tests.adapters.providers.local.conftest import recalls
from tests.conftest import Need
from tests.engines import AGENTS, DATA, local_config

IMAGE = DATA.with_name("test-image")
TINY_IMAGE = DATA.with_name("tiny-image")
"""Enough for a guest that is joined, and unpacked in a moment."""
TINY_TERMS = Terms("base", image=f"oci:{TINY_IMAGE}:latest", agents=AGENTS)

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
    def open_provider(cls, need: Need, tiny_root: Path) -> Open:
        found = runtime.installed().get(cls.runtime)
        if found is None:
            need(cls.runtime, "not installed")
        if why := runtime.outdated(found):
            need(cls.runtime, why)

        async def open_it() -> Provider:
            provider = await LocalProvider.open(local_config(runtime=cls.runtime), agents=AGENTS)
            if cls.terms is TINY_TERMS:
                make_tiny_image(tiny_root)
            else:
                await make_image(provider)
            return provider

        return open_it


def make_tiny_image(root: Path) -> None:
    with TINY_IMAGE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        oci_image.build(root, TINY_IMAGE)


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
    terms = TINY_TERMS


@pytest.mark.slow
class TestRunc(LocalConformance):
    """The fallback."""

    runtime = "runc"
    terms = TINY_TERMS


@pytest.mark.slow
class TestRunsc(LocalConformance):
    """gVisor, for hostile code; the guest is packed."""

    runtime = "runsc"
    claims = GVISOR

    @pytest.mark.asyncio(loop_scope="session")
    async def test_it_claims_what_it_is_expected_to(self, subject: Subject) -> None:
        expected = replace(GVISOR, checkpoint=recalls(runtime.installed()["runsc"]))
        same(subject.capabilities, expected, "the capabilities")
