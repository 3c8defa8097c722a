"""Allowlists of containers: what they outlive, and where there are none."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.domain.egress import CLOSED, OPEN, EgressPolicy, NetworkMode, SourcedRule
from paddock.domain.errors import Unsupported
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.guest_client import Guest
from paddock.ports.provider import Ref, SandboxSpec, Status
from tests.adapters.providers.docker.conftest import BASE, Installation
from tests.upstreams import Upstream, upstream

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("base_image")]

NAMES = ("allowed.example", "other.example")


def allowing(*rules: str) -> EgressPolicy:
    return EgressPolicy(NetworkMode.ALLOWLIST, tuple(map(SourcedRule, rules)))


FENCED = SandboxSpec(template=BASE, egress=allowing("allowed.example"))


@pytest.fixture(scope="module")
async def there() -> AsyncIterator[Upstream]:
    async with upstream(*NAMES) as made:
        yield made


@pytest.fixture
def egress(there: Upstream) -> EgressConfig:
    return EgressConfig(hosts=dict.fromkeys(NAMES, there.address))


async def fetched(provider: DockerProvider, ref: Ref, url: str) -> str:
    """What a server says; empty where it is not reached."""
    async with Guest(await provider.guest(ref)) as guest:
        done = await guest.exec(["curl", "-sS", "-m", "5", url], timeout=15)
        return done.text if done.exit_code == 0 else ""


async def reached(provider: DockerProvider, ref: Ref) -> set[str]:
    return {name for name in NAMES if await fetched(provider, ref, f"http://{name}/")}


def gateways(provider: DockerProvider) -> list[int]:
    assert provider.gateway is not None
    mark = f"--of={provider.gateway.place}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.proves("P16")
async def test_a_policy_outlives_the_control_plane_with_its_connections(
    installation: Installation, egress: EgressConfig
) -> None:
    async with installation.opened(egress=egress) as provider:
        made = await provider.create("kept", FENCED)
        await provider.set_egress(made.ref, allowing("other.example"))
        (gateway,) = gateways(provider)
        async with Guest(await provider.guest(made.ref)) as guest:
            slow = ["curl", "-sS", "-o", "/home/user/slow", "http://other.example/slow?30"]
            await guest.runs.start("slow", slow)
            async with asyncio.timeout(10):
                while (await guest.exec(["grep", "-q", "tick", "/home/user/slow"])).exit_code:
                    await asyncio.sleep(0.05)
    async with installation.opened(egress=egress) as provider:
        assert gateways(provider) == [gateway]
        assert await reached(provider, made.ref) == {"other.example"}
        async with Guest(await provider.guest(made.ref)) as guest:
            assert [event async for event in guest.runs.tail("slow")][-1].exit_code == 0
            assert (await guest.files.read("/home/user/slow")).count(b"tick") == 30
        await provider.set_egress(made.ref, allowing(*NAMES))
        assert await reached(provider, made.ref) == set(NAMES)


@pytest.mark.proves("P16")
async def test_a_gateway_that_died_is_followed_by_another(
    installation: Installation, egress: EgressConfig
) -> None:
    async with installation.opened(egress=egress) as provider:
        made = await provider.create("kept", FENCED)
        (gateway,) = gateways(provider)
        os.kill(gateway, signal.SIGKILL)
        assert await reached(provider, made.ref) <= {"allowed.example"}
        async with asyncio.timeout(15):
            while await reached(provider, made.ref) != {"allowed.example"}:
                await asyncio.sleep(0.2)


@pytest.mark.proves("P16")
async def test_it_is_behind_its_fence_again_after_every_way_of_standing_still(
    installation: Installation, egress: EgressConfig
) -> None:
    async with installation.opened(egress=egress) as provider:
        made = await provider.create("kept", FENCED)
        assert provider.gateway is not None
        await provider.pause(made.ref)
        await provider.set_egress(made.ref, allowing("other.example"))
        await provider.resume(made.ref)
        assert await reached(provider, made.ref) == {"other.example"}
        await provider.stop(made.ref)
        assert await provider.gateway.attached() == frozenset()
        await provider.set_egress(made.ref, allowing("allowed.example"))
        await provider.start(made.ref)
        assert await reached(provider, made.ref) == {"allowed.example"}
        await provider.set_egress(made.ref, CLOSED)
        await provider.stop(made.ref)
        await provider.start(made.ref)
        assert await reached(provider, made.ref) == set()
        await provider.set_egress(made.ref, OPEN)
        await provider.stop(made.ref)
        await provider.set_egress(made.ref, allowing("allowed.example"))
        await provider.start(made.ref)
        assert await reached(provider, made.ref) == {"allowed.example"}


@pytest.mark.proves("P16")
@pytest.mark.parametrize("done", ["restart", "kill"])
async def test_what_is_done_past_paddock_opens_nothing(
    installation: Installation, egress: EgressConfig, done: str
) -> None:
    async with installation.opened(egress=egress) as provider:
        made = await provider.create("kept", FENCED)
        await provider._parts.engine.post(f"containers/{made.ref.id}/{done}", done, t=1)
        async with asyncio.timeout(20):
            while (seen := await provider.observe(made.ref)).state is SandboxState.RUNNING:
                await asyncio.sleep(0.1)
        assert seen.reason is Reason.CRASHED
        assert provider.gateway is not None
        assert await provider.gateway.attached() == frozenset()
        await provider.start(made.ref)
        assert await reached(provider, made.ref) == {"allowed.example"}


@pytest.mark.proves("P4")
async def test_where_no_process_can_enter_it_is_refused_with_the_reason(
    installation: Installation,
) -> None:
    async with installation.opened(guest="packed") as provider:
        assert not provider.capabilities.allowlist
        with pytest.raises(Unsupported, match="guests are packed into their images"):
            await provider.create("packed", FENCED)
        findings = {finding.name: finding for finding in (await provider.check()).findings}
        assert findings["allowlists"].status is Status.DEGRADED
    async with installation.opened() as provider:
        assert provider.capabilities.allowlist
        findings = {finding.name: finding for finding in (await provider.check()).findings}
        assert findings["allowlists"].status is Status.OK


@pytest.mark.proves("P4")
async def test_gvisor_is_refused_with_the_reason(installation: Installation, need: Any) -> None:
    async with installation.opened() as provider:
        if "runsc" not in (provider._parts.engine.about.info.get("Runtimes") or {}):
            need("runsc", "the engine knows none that is recent enough (with systrap)")
        strong = SandboxSpec(template=BASE, egress=FENCED.egress, runtime="runsc")
        with pytest.raises(Unsupported, match="can enter this sandbox's network"):
            await provider.create("strong", strong)
        plain = await provider.create("strong", SandboxSpec(template=BASE, runtime="runsc"))
        with pytest.raises(Unsupported, match="can enter this sandbox's network"):
            await provider.set_egress(plain.ref, FENCED.egress)
