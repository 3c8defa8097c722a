"""A control process that is killed at any moment leaves nothing half made and loses nothing."""

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.domain.egress import OPEN, EgressPolicy
from paddock.domain.errors import PaddockError
from paddock.domain.sandbox import SandboxState
from paddock.guest_client import Guest
from paddock.ports.provider import Observation, SandboxSpec
from tests.adapters.providers.docker.conftest import TINY, Installation
from tests.adapters.providers.docker.faulty import FENCE, SPECS
from tests.adapters.providers.fault_steps import choose, moment, some_steps

pytestmark = [pytest.mark.timeout(300)]

REPOSITORY = Path(__file__).parents[4]
WORK = "/home/user/work.txt"
LATE_S = 15.0
"""How long an engine may take to finish what it was asked by a process that is dead."""


async def start(installation: Installation, guest: str, operation: str, step: int):
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.adapters.providers.docker.faulty"),
        *(installation.host, str(installation.run_root), installation.name),
        *(guest, operation, str(step)),
        cwd=REPOSITORY,
        env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def steps_of(installation: Installation, guest: str, operation: str) -> list[str]:
    """Perform the whole operation; the names of its steps."""
    return await perform(installation, guest, operation, 1000, 0)


async def die_during(installation: Installation, guest: str, operation: str, step: int) -> str:
    """Kill the process after a step; the step's name."""
    return (await perform(installation, guest, operation, step, -signal.SIGKILL))[-1]


async def perform(
    installation: Installation, guest: str, operation: str, step: int, code: int
) -> list[str]:
    process = await start(installation, guest, operation, step)
    output, errors = await process.communicate()
    assert process.returncode == code, errors.decode()
    return output.decode().split()


async def make_source(provider: DockerProvider, spec: SandboxSpec) -> Observation:
    source = await provider.create("source", spec)
    if source.state is SandboxState.STOPPED:
        source = await provider.start(source.ref)
    async with Guest(await provider.guest(source.ref)) as guest:
        await guest.files.write(WORK, b"precious")
    return source


async def assert_whole(provider: DockerProvider, when: str) -> None:
    """Every sandbox that is listed can be used, and has its work."""
    async for seen in provider.find({}):
        if seen.state is SandboxState.STOPPED:
            seen = await provider.start(seen.ref)
        assert seen.state is SandboxState.RUNNING, when
        async with Guest(await provider.guest(seen.ref)) as guest:
            result = await guest.exec(["cat", WORK], timeout=20)
            assert seen.key == "victim" or result.stdout == b"precious", when
    await assert_enclosed(provider, when)


async def assert_enclosed(provider: DockerProvider, when: str) -> None:
    """Those that have a policy are behind it, and only there."""
    life, gateway = provider._life, provider.gateway
    kept = {policy.container for policy in await life.machines.fencing.policies.all()}
    assert (await gateway.attached() if gateway else set()) == kept, when
    for ref in kept:
        assert life.names.network not in (await life.inspect(ref)).networks, when


async def remove_results(provider: DockerProvider) -> None:
    async for seen in provider.find({}):
        if seen.key == "victim":
            await provider.destroy(seen.ref)
    async for snapshot in provider.snapshots():
        await provider.delete_snapshot(snapshot.ref)


@pytest.mark.proves("L7")
@some_steps
@pytest.mark.parametrize("operation", ["create", "snapshot", "fork", "destroy", "stop", "start"])
async def test_dying_after_any_step_leaves_nothing_half_made(
    installation: Installation, operation: str, most: int
) -> None:
    await die_after_steps(installation, "joined", operation, most)


@pytest.mark.proves("L7")
@pytest.mark.parametrize(
    "most",
    [
        pytest.param(2, id="some", marks=pytest.mark.slow),
        pytest.param(1000, id="all", marks=pytest.mark.soak),
    ],
)
@pytest.mark.usefixtures("base_image")
@pytest.mark.parametrize("operation", ["create", "fork"])
async def test_dying_while_a_packed_guest_comes_in_leaves_nothing_half_made(
    installation: Installation, operation: str, most: int
) -> None:
    await die_after_steps(installation, "packed", operation, most)


@pytest.mark.proves("P16")
@some_steps
@pytest.mark.parametrize(
    ("operation", "before"), [("enclose", OPEN), ("release", FENCE), ("close", OPEN)]
)
async def test_dying_while_its_network_is_changed_leaves_it_with_one_or_the_other(
    installation: Installation, operation: str, before: EgressPolicy, most: int
) -> None:
    await die_after_steps(installation, "joined", operation, most, before)


async def die_after_steps(
    installation: Installation,
    guest: str,
    operation: str,
    most: int,
    before: EgressPolicy | None = None,
) -> None:
    spec = SPECS[guest]
    async with installation.opened(guest=guest) as provider:
        await make_source(provider, spec)
        clean = counted(await installation.left())

    async def make_ready() -> None:
        async with installation.opened(guest=guest) as provider:
            source = await make_source(provider, spec)
            if before is not None:
                await provider.set_egress(source.ref, before)
            if operation == "start":
                await provider.stop(source.ref)

    async def recover(when: str) -> None:
        async with installation.opened(guest=guest) as provider:
            await assert_whole(provider, when)
            await remove_results(provider)
            source = await make_source(provider, spec)
            if before is not None:
                await provider.set_egress(source.ref, spec.egress)
            assert counted(await installation.left()) == clean, when

    await make_ready()
    steps = await steps_of(installation, guest, operation)
    assert steps, "the operation has steps to be killed at"
    await recover(f"{operation} was done")
    for step in choose(steps, most):
        await make_ready()
        name = await die_during(installation, guest, operation, step)
        await recover(moment(operation, name))


def counted(found: dict[str, list[str]]) -> dict[str, int]:
    return {kind: len(names) for kind, names in found.items() if kind != "locks"}


@pytest.mark.proves("L7")
@pytest.mark.parametrize(
    "kills",
    [pytest.param(3, marks=pytest.mark.slow), pytest.param(30, marks=pytest.mark.soak)],
)
async def test_dying_at_random_moments_leaves_nothing_once_the_engine_has_settled(
    installation: Installation, kills: int
) -> None:
    async with installation.opened(guest="joined") as provider:
        await make_source(provider, SPECS["joined"])
    moments = random.Random(7)
    for number in range(kills):
        operation = ("create", "fork", "snapshot")[number % 3]
        process = await start(installation, "joined", operation, 1000)
        await asyncio.sleep(moments.uniform(0.0, 0.8))
        if process.returncode is None:
            process.kill()
        await process.communicate()
        await _settles(installation, f"{operation} number {number}")


async def _settles(installation: Installation, when: str) -> None:
    until = time.monotonic() + LATE_S
    while True:
        try:
            async with installation.opened(guest="joined") as provider:
                await assert_whole(provider, when)
                await remove_results(provider)
            found = await installation.left()
            assert len(found["containers"]) == 1, when
            assert "images" not in found, when
            assert len(found["volumes"]) == 1, when
            return
        except (AssertionError, PaddockError):
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.5)


@pytest.mark.proves("L7")
async def test_a_cancelled_creation_leaves_nothing(installation: Installation) -> None:
    moments = random.Random(11)
    async with installation.opened(guest="joined") as provider:
        for number in range(8):
            spec = SandboxSpec(template=TINY, egress=FENCE)
            task = asyncio.create_task(provider.create(f"cancelled-{number}", spec))
            await asyncio.sleep(moments.uniform(0.0, 0.5))
            task.cancel()
            done, _ = await asyncio.wait([task])
            if not done.pop().cancelled():
                await provider.destroy(task.result().ref)
        assert [seen async for seen in provider.find({})] == []
    assert await installation.left() == {}


@pytest.mark.proves("L7")
async def test_a_failed_creation_leaves_nothing(installation: Installation) -> None:
    def fail(step: str) -> None:
        if step == "boot.guest":
            raise PaddockError("as if something had gone wrong")

    async with installation.opened(guest="joined", on_step=fail) as provider:
        with pytest.raises(PaddockError, match="gone wrong"):
            await provider.create("failed", SandboxSpec(template=TINY))
    assert await installation.left() == {}
