"""A control process that is killed between any two steps leaves nothing and loses nothing."""

import asyncio
import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.sandbox import SandboxState
from paddock.guest_client import Guest
from paddock.ports.provider import Observation, SandboxSpec
from tests.adapters.providers.fault_steps import choose, moment, some_steps
from tests.adapters.providers.local.conftest import Installation
from tests.adapters.providers.local.traces import look

pytestmark = [pytest.mark.timeout(300)]

REPOSITORY = Path(__file__).parents[4]
OPERATIONS = (
    "create",
    "snapshot",
    "snapshot-without",
    "fork",
    "destroy",
    "stop",
    "delete-snapshot",
)


async def steps_of(data_dir: Path, operation: str) -> list[str]:
    """Perform the whole operation; the names of its steps."""
    return await _perform(data_dir, operation, 1000, 0)


async def die_during(data_dir: Path, operation: str, step: int) -> str:
    """Kill the process after a step; the step's name."""
    return (await _perform(data_dir, operation, step, -signal.SIGKILL))[-1]


async def _perform(data_dir: Path, operation: str, step: int, code: int) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.adapters.providers.local.faulty"),
        *(str(data_dir), operation, str(step)),
        cwd=REPOSITORY,
        env={**os.environ, "PADDOCK_TEST_TEMPLATE": "tiny"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == code, errors.decode()
    return output.decode().split()


async def make_source(provider: LocalProvider) -> Observation:
    source = await provider.create(
        "source", SandboxSpec(template="tiny", labels={"role": "source"})
    )
    if source.state is not SandboxState.RUNNING:
        source = await provider.start(source.ref)
    async with Guest(await provider.guest(source.ref)) as guest:
        await guest.files.write("/home/user/work.txt", b"precious")
        await guest.files.write("/home/user/.cache/pip/one", b"not so precious")
    return source


@pytest.mark.proves("L7")
@some_steps
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_dying_after_any_step_leaves_nothing_half_made(
    installation: Installation, operation: str, most: int
) -> None:
    async def recover(when: str) -> None:
        async with installation.opened() as provider:
            await assert_whole(provider, operation, when)
            await remove_results(provider, operation)
            source = await make_source(provider)
            if operation == "delete-snapshot":
                await provider.snapshot(source.ref, "kept")

    async with installation.opened() as provider:
        source = await make_source(provider)
        if operation == "delete-snapshot":
            await provider.snapshot(source.ref, "kept")
    clean = look(installation.data_dir)
    steps = await steps_of(installation.data_dir, operation)
    assert len(steps) >= 2, "the operation has steps to be killed at"
    await recover(f"{operation} was done")
    for step in choose(steps, most):
        when = moment(operation, await die_during(installation.data_dir, operation, step))
        await recover(when)
        if operation not in ("destroy", "stop", "delete-snapshot"):
            left = look(installation.data_dir)
            assert left == replace(clean, processes=left.processes), when
    async with installation.opened() as provider:
        await installation.empty(provider)
    installation.assert_no_traces()


@some_steps
@pytest.mark.parametrize("operation", ["archive", "unarchive"])
async def test_dying_while_a_disk_is_packed_or_unpacked_leaves_one_whole_copy(
    installation: Installation, operation: str, most: int
) -> None:
    async with installation.opened() as provider:
        source = (await make_source(provider)).ref

    async def make_ready() -> None:
        async with installation.opened() as provider:
            await provider.stop(source)
            if operation == "unarchive":
                await provider.archive(source)

    async def recover(when: str, *, killed: bool) -> None:
        async with installation.opened() as provider:
            seen = await provider.observe(source)
            left = look(installation.data_dir)
            is_archived = seen.state is SandboxState.ARCHIVED
            assert left.archives == ({f"{source.id}.tar.zst"} if is_archived else set()), when
            assert left.volumes == (set() if is_archived else {source.id}), when
            assert not (killed and seen.state is SandboxState.RUNNING and operation == "archive")
            assert not provider._life.records.read(source.id).owner, when
            started = await provider.start(source)
            assert look(installation.data_dir).archives == set(), when
            async with Guest(await provider.guest(started.ref)) as guest:
                result = await guest.exec(["cat", "/home/user/work.txt"], timeout=10)
                assert result.stdout == b"precious", when

    await make_ready()
    steps = await steps_of(installation.data_dir, operation)
    assert {f"{operation}.noted", f"{operation}.volume"} <= set(steps)
    await recover(f"{operation} was done", killed=False)
    for step in choose(steps, most):
        await make_ready()
        name = await die_during(installation.data_dir, operation, step)
        await recover(moment(operation, name), killed=True)
    async with installation.opened() as provider:
        await installation.empty(provider)
    installation.assert_no_traces()


async def assert_whole(provider: LocalProvider, operation: str, when: str) -> None:
    """Every sandbox that is listed is usable, and the source still has its work."""
    seen = [observation async for observation in provider.find({})]
    for observation in seen:
        assert observation.state in (SandboxState.RUNNING, SandboxState.STOPPED), when
        if observation.state is SandboxState.STOPPED:
            assert operation == "stop", when
            continue
        async with Guest(await provider.guest(observation.ref)) as guest:
            result = await guest.exec(["cat", "/home/user/work.txt"], timeout=10)
            if observation.key != "victim" or operation == "fork":
                assert result.stdout == b"precious", when
    if operation not in ("destroy",):
        assert any(observation.key == "source" for observation in seen), when


async def remove_results(provider: LocalProvider, operation: str) -> None:
    async for observation in provider.find({}):
        if observation.key == "victim":
            await provider.destroy(observation.ref)
    if operation != "delete-snapshot":
        async for snapshot in provider.snapshots():
            await provider.delete_snapshot(snapshot.ref)


@pytest.mark.proves("L7")
@pytest.mark.parametrize(
    "kills",
    [pytest.param(12, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.soak)],
)
async def test_dying_at_random_moments_leaves_nothing(
    installation: Installation, kills: int
) -> None:
    async with installation.opened() as provider:
        await make_source(provider)
    clean = look(installation.data_dir)
    moments = random.Random(7)
    for number in range(kills):
        operation = ("create", "fork", "snapshot")[number % 3]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.adapters.providers.local.faulty"),
            *(str(installation.data_dir), operation, "1000"),
            cwd=REPOSITORY,
            env={**os.environ, "PADDOCK_TEST_TEMPLATE": "tiny"},
            stdout=asyncio.subprocess.DEVNULL,
        )
        await asyncio.sleep(moments.uniform(0.3, 0.9))
        if process.returncode is None:
            process.kill()
        await process.wait()
        async with installation.opened() as provider:
            await assert_whole(provider, operation, f"{operation} number {number}")
            await remove_results(provider, operation)
        assert look(installation.data_dir) == clean
    async with installation.opened() as provider:
        await installation.empty(provider)
    installation.assert_no_traces()


@pytest.mark.proves("L7")
async def test_a_cancelled_create_leaves_nothing(installation: Installation) -> None:
    """Cancelled at many moments: nothing comes to be after the clean-up was done."""
    async with installation.opened() as provider:
        await provider.prepare("tiny")
        for number in range(20):
            task = asyncio.create_task(
                provider.create(f"cancelled-{number}", SandboxSpec(template="tiny"))
            )
            await asyncio.sleep(number * 0.003)
            task.cancel()
            result = (await asyncio.gather(task, return_exceptions=True))[0]
            if isinstance(result, Observation):
                await provider.destroy(result.ref)
        await asyncio.sleep(0.3)
        installation.assert_no_traces()


@pytest.mark.proves("N1")
async def test_a_cancelled_snapshot_leaves_the_sandbox_running(installation: Installation) -> None:
    async with installation.opened() as provider:
        source = await make_source(provider)
        for number in range(10):
            task = asyncio.create_task(provider.snapshot(source.ref, f"cancelled-{number}"))
            await asyncio.sleep(number * 0.0007)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not provider._life.machines.cgroup(source.ref.id).frozen()
        async with Guest(await provider.guest(source.ref)) as guest:
            assert (await guest.exec(["true"], timeout=5)).exit_code == 0


async def test_a_key_of_a_snapshot_that_died_can_be_used_by_others_at_once(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        source = await make_source(provider)
        await die_during(installation.data_dir, "snapshot", 1)
        taken = await provider.snapshot(source.ref, "victim")
        assert taken.source == source.ref.id
        async with Guest(await provider.guest(source.ref)) as guest:
            assert (await guest.exec(["true"], timeout=5)).exit_code == 0
