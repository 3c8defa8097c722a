"""The strong tier on an engine: gVisor's kernel between the sandbox and the host's."""

from typing import Any

import pytest

from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.engine import Engine
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.docker.conftest import BASE, Installation

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("base_image")]


@pytest.fixture
async def runsc(engine_host: str, need: Any) -> None:
    async with Engine(EngineAddress.parse(engine_host)) as engine:
        if "runsc" not in (engine.about.info.get("Runtimes") or {}):
            need("runsc", "the engine knows none that is recent enough (with systrap)")


@pytest.mark.proves("P17")
async def test_a_sandbox_may_ask_for_a_kernel_of_its_own(
    installation: Installation, runsc: None
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("strong", SandboxSpec(template=BASE, runtime="runsc"))
        async with Guest(await provider.guest(seen.ref)) as guest:
            assert b"gVisor" in (await guest.exec(["dmesg"], user="root")).stdout
            assert (await guest.exec(["id", "-un"])).text == "user\n"
        await provider.stop(seen.ref)
        await provider.start(seen.ref)
        async with Guest(await provider.guest(seen.ref)) as guest:
            assert (await guest.exec(["echo", "on"])).text == "on\n"
