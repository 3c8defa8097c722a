"""Why a sandbox ended is known, whoever ended it and whoever asks."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.joined import control_group
from paddock.adapters.providers.docker.records import find
from paddock.domain.errors import PaddockError
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.docker.conftest import TINY, Installation

pytestmark = pytest.mark.timeout(120)

SPEC = SandboxSpec(template=TINY)


async def processes_of(host: str, container: str) -> tuple[int, list[int]]:
    """The first process and the others, as this host numbers them."""
    async with Engine(EngineAddress.parse(host)) as engine:
        found = await find(engine, container)
        return found.pid, [pid for pid in control_group(found).pids() if pid != found.pid]


async def test_one_whose_first_process_was_killed_has_crashed(installation: Installation) -> None:
    async with installation.opened(guest="joined") as provider:
        seen = await provider.create("killed", SPEC)
        first, _ = await processes_of(installation.host, seen.ref.id)
        os.kill(first, signal.SIGKILL)
        for _ in range(100):
            seen = await provider.observe(seen.ref)
            if seen.state is SandboxState.STOPPED:
                break
            await asyncio.sleep(0.05)
        assert (seen.state, seen.reason) == (SandboxState.STOPPED, Reason.CRASHED)
        assert seen.detail
        assert (await provider.start(seen.ref)).reason is None


async def test_one_whose_guest_was_killed_is_stopped_and_can_be_started(
    installation: Installation,
) -> None:
    async with installation.opened(guest="joined") as provider:
        seen = await provider.create("guestless", SPEC)
        async with Guest(await provider.guest(seen.ref)) as guest:
            await guest.files.write("/home/user/kept", b"kept")
        _, others = await processes_of(installation.host, seen.ref.id)
        (guest_pid,) = others
        os.kill(guest_pid, signal.SIGKILL)
        while Path(f"/proc/{guest_pid}").exists():
            await asyncio.sleep(0.01)
        seen = await provider.observe(seen.ref)
        assert (seen.state, seen.reason) == (SandboxState.STOPPED, Reason.CRASHED)
        await provider.start(seen.ref)
        async with Guest(await provider.guest(seen.ref)) as guest:
            assert await guest.files.read("/home/user/kept") == b"kept"


async def test_one_that_was_stopped_past_us_was_lost_by_its_provider(
    installation: Installation,
) -> None:
    async with installation.opened(guest="joined") as provider:
        seen = await provider.create("stopped", SPEC)
        async with Engine(EngineAddress.parse(installation.host)) as engine:
            await engine.post(f"containers/{seen.ref.id}/stop", "stop it", t=5)
        seen = await provider.observe(seen.ref)
        assert (seen.state, seen.reason) == (SandboxState.STOPPED, Reason.PROVIDER_LOST)


async def test_one_that_was_restarted_past_us_is_not_taken_for_running(
    installation: Installation,
) -> None:
    async with installation.opened(guest="joined") as provider:
        seen = await provider.create("restarted", SPEC)
        async with Engine(EngineAddress.parse(installation.host)) as engine:
            await engine.post(f"containers/{seen.ref.id}/restart", "restart it", t=5)
        seen = await provider.observe(seen.ref)
        assert seen.state is SandboxState.STOPPED


async def test_one_whose_guest_was_killed_for_want_of_memory_says_so(
    installation: Installation,
) -> None:
    async with installation.opened(guest="joined") as provider:
        limits = Resources(memory_mib=48)
        seen = await provider.create("oom", SandboxSpec(template=TINY, resources=limits))
        _, (guest_pid,) = await processes_of(installation.host, seen.ref.id)
        async with Guest(await provider.guest(seen.ref)) as guest:
            # Memory that belongs to no process, so that nobody else is the greediest.
            wait = "cd; touch begun; until test -e go; do sleep 0.05; done"
            fill = "dd if=/dev/zero of=/dev/shm/big bs=1M count=60"
            eating = asyncio.create_task(guest.exec(["sh", "-c", f"{wait}; {fill}"], timeout=30))
            async with asyncio.timeout(20):
                while (await guest.exec(["test", "-e", "begun"])).exit_code:
                    await asyncio.sleep(0.05)
            # Later, so that no program inherits it.
            Path(f"/proc/{guest_pid}/oom_score_adj").write_text("1000")
            await guest.files.write("go", b"")
            with pytest.raises(PaddockError):
                await eating
        async with asyncio.timeout(10):  # a process that was killed has its socket for a moment
            while (seen := await provider.observe(seen.ref)).state is SandboxState.RUNNING:
                await asyncio.sleep(0.05)
        assert (seen.state, seen.reason) == (SandboxState.STOPPED, Reason.OOM), seen.detail


ENDS = [
    (137, True, Reason.OOM),
    (137, False, Reason.CRASHED),
    (1, False, Reason.CRASHED),
    (139, False, Reason.CRASHED),
    (0, False, Reason.PROVIDER_LOST),
    (143, False, Reason.PROVIDER_LOST),
    (255, False, Reason.PROVIDER_LOST),
]


async def test_what_the_engine_knows_of_an_end_becomes_a_reason(installation: Installation) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("ended", SPEC)
        machines = provider._life.machines
        running = await provider._life.inspect(seen.ref.id)
        for exit_code, oom_killed, reason in ENDS:
            ended = replace(running, status="exited", exit_code=exit_code, oom_killed=oom_killed)
            found, detail = await machines.why_ended(ended)
            assert found is reason, (exit_code, oom_killed)
            assert detail


@pytest.mark.proves("P13")
async def test_one_that_has_outgrown_its_disk_is_stopped_for_it(installation: Installation) -> None:
    async with installation.opened(guest="joined", disk_watch_s=0.3) as provider:
        limits = Resources(disk_mib=16)
        seen = await provider.create("full", SandboxSpec(template=TINY, resources=limits))
        async with Guest(await provider.guest(seen.ref)) as guest:
            await guest.exec(["dd", "if=/dev/zero", "of=/home/user/big", "bs=1M", "count=20"])
        for _ in range(100):
            seen = await provider.observe(seen.ref)
            if seen.state is SandboxState.STOPPED:
                break
            await asyncio.sleep(0.1)
        assert (seen.state, seen.reason) == (SandboxState.STOPPED, Reason.DISK_FULL)
        assert "16 MiB" in seen.detail


async def test_what_others_put_on_the_engine_is_neither_seen_nor_touched(
    installation: Installation,
) -> None:
    other = Installation(installation.host, installation.run_root)
    async with installation.opened(guest="joined") as mine, other.opened(guest="joined") as theirs:
        seen = await mine.create("same key", SPEC)
        assert [one async for one in theirs.find({})] == []
        await theirs.destroy(seen.ref)
        assert (await mine.observe(seen.ref)).state is SandboxState.RUNNING
        again = await theirs.create("same key", SPEC)
        assert again.ref != seen.ref
        await theirs.destroy(again.ref)
    assert await other.left() == {}
