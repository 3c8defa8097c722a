"""The open network: what it leads to, what it does not, and that it goes when nobody uses it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.names import Names
from paddock.adapters.providers.docker.network import can_fence
from paddock.domain.egress import CLOSED, OPEN
from paddock.guest_client import Guest
from paddock.ports.provider import Provider, Ref, SandboxSpec
from paddock.testing.conformance import listener_here, neighbour
from tests.adapters.providers.docker.conftest import TINY, Installation

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def nftables(need: Any) -> None:
    if not can_fence():
        need("nft", "not installed")


async def reaches(provider: Provider, ref: Ref, host: str, port: int) -> bool:
    async with Guest(await provider.guest(ref)) as guest:
        result = await guest.exec(["nc", "-w", "2", host, str(port)], timeout=10)
        return result.exit_code == 0


async def address_of(provider: Provider, ref: Ref) -> str:
    async with Guest(await provider.guest(ref)) as guest:
        said = await guest.exec(["sh", "-c", "ip -4 addr show | grep -o 'inet 10[^/]*'"])
        return said.text.split()[-1]


@pytest.mark.slow
@pytest.mark.proves("P16")
async def test_an_open_sandbox_reaches_others_but_not_the_host_or_its_neighbours(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        one = await provider.create("one", SandboxSpec(template=TINY, egress=OPEN))
        two = await provider.create("two", SandboxSpec(template=TINY, egress=OPEN))
        async with neighbour() as away, listener_here() as here:
            assert await reaches(provider, one.ref, *away)
            assert not await reaches(provider, one.ref, *here)
            gateway = (await address_of(provider, one.ref)).rpartition(".")[0] + ".1"
            assert not await reaches(provider, one.ref, gateway, here[1])
        async with Guest(await provider.guest(two.ref)) as guest:
            serving = asyncio.create_task(guest.exec(["nc", "-l", "-p", "7000"], timeout=20))
            await asyncio.sleep(0.5)
            there = await address_of(provider, two.ref)
            assert not await reaches(provider, one.ref, there, 7000)
            serving.cancel()
        # Link-local addresses, where clouds keep their metadata, are refused and not just silent.
        async with Guest(await provider.guest(one.ref)) as guest:
            asked = await guest.exec(["nc", "-w", "5", "169.254.169.254", "80"], timeout=10)
            assert asked.exit_code != 0
            assert b"timed out" not in asked.stderr


async def test_the_network_goes_with_its_last_sandbox(installation: Installation) -> None:
    async with installation.opened() as provider:
        one = await provider.create("one", SandboxSpec(template=TINY, egress=OPEN))
        assert set(await installation.left()) >= {"networks", "rules"}
        await provider.set_egress(one.ref, CLOSED)
        assert not set(await installation.left()) & {"networks", "rules"}
        await provider.set_egress(one.ref, OPEN)
        await provider.stop(one.ref)
        assert "networks" in await installation.left(), "a stopped one comes back with its network"
        await provider.destroy(one.ref)
        assert not set(await installation.left()) & {"networks", "rules"}


async def test_a_stopped_sandbox_comes_back_open_also_when_its_network_was_lost(
    installation: Installation,
) -> None:
    names = Names(installation.name)
    async with installation.opened() as provider, neighbour() as away:
        seen = await provider.create("one", SandboxSpec(template=TINY, egress=OPEN))
        await provider.stop(seen.ref)
        async with Engine(EngineAddress.parse(installation.host)) as engine:
            await engine.delete(f"networks/{names.network}", "remove it")
        await provider.start(seen.ref)
        assert await reaches(provider, seen.ref, *away)


@pytest.mark.proves("P16")
async def test_egress_can_be_changed_while_stopped_or_paused(installation: Installation) -> None:
    async with installation.opened() as provider, neighbour() as away:
        seen = await provider.create("one", SandboxSpec(template=TINY))
        await provider.stop(seen.ref)
        await provider.set_egress(seen.ref, OPEN)
        await provider.start(seen.ref)
        assert await reaches(provider, seen.ref, *away)
        await provider.pause(seen.ref)
        await provider.set_egress(seen.ref, CLOSED)
        await provider.resume(seen.ref)
        assert not await reaches(provider, seen.ref, *away)


@pytest.mark.proves("P16")
async def test_rules_that_a_restarted_host_has_forgotten_come_back(
    installation: Installation,
) -> None:
    names = Names(installation.name)
    async with installation.opened() as provider:
        await provider.create("one", SandboxSpec(template=TINY, egress=OPEN))
    process = await asyncio.create_subprocess_exec("nft", "delete", "table", "inet", names.table)
    assert await process.wait() == 0
    for port in Path(f"/sys/class/net/{names.bridge}/brif").iterdir():
        (port / "isolated").write_text("0")
    async with installation.opened():
        assert "rules" in await installation.left()
        ports = list(Path(f"/sys/class/net/{names.bridge}/brif").iterdir())
        assert [(port / "isolated").read_text().strip() for port in ports] == ["1"]
