"""What the suite cannot see of the reference provider: the processes and files it leaves."""

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.domain.errors import Broken, Conflict, InvalidRequest
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.guest_client import Guest
from paddock.ports.provider import Ref, SandboxSpec
from paddock.testing import processes
from paddock.testing.conformance import probes
from paddock.testing.conformance.outside import processes_here
from paddock.testing.records import Record
from paddock.testing.reference import TEMPLATE, ReferenceProvider

SPEC = SandboxSpec(template=TEMPLATE)


@pytest.fixture
def provider(fresh_place: Path) -> ReferenceProvider:
    return ReferenceProvider(fresh_place)


def below(place: Path) -> Iterator[Path]:
    return (path for path in place.rglob("*") if path.parent.name != "locks")


async def guest_pid(provider: ReferenceProvider, ref: Ref) -> int:
    async with Guest(await provider.guest(ref)) as guest:
        return int((await guest.exec(["sh", "-c", "echo $PPID"])).text)


async def test_after_destroy_the_place_is_as_empty_as_before(provider, fresh_place):
    before = sorted(below(fresh_place))
    seen = await provider.create("k", SPEC)
    assert sorted(below(fresh_place)) != before
    await provider.destroy(seen.ref)
    assert sorted(below(fresh_place)) == before


async def test_nothing_is_written_outside_of_its_place(provider, fresh_place):
    seen = await provider.create("k", SPEC)
    async with Guest(await provider.guest(seen.ref)) as guest:
        said = (await guest.exec(["sh", "-c", "pwd -P; cd; pwd -P; echo $HOME"])).text.split()
    assert all(Path(path).is_relative_to(fresh_place) for path in said)
    await provider.destroy(seen.ref)


async def test_a_guest_that_dies_is_a_failed_sandbox_and_can_be_destroyed(provider):
    seen = await provider.create("k", SPEC)
    async with Guest(await provider.guest(seen.ref)) as guest:
        await guest.exec(["python3", "-c", probes.DAEMON_OF, "orphan", probes.BEAT, "beat"])
    pid = await guest_pid(provider, seen.ref)
    os.kill(pid, signal.SIGKILL)
    while (proc := processes.read(pid)) and not proc.is_dead:
        await asyncio.sleep(0.01)
    failed = await provider.observe(seen.ref)
    assert (failed.state, failed.reason) == (SandboxState.FAILED, Reason.CRASHED)
    with pytest.raises(Conflict):
        await provider.guest(seen.ref)
    family = provider._record(seen.ref).family
    assert family.members(), "the orphan of the dead guest is gone by itself"
    await provider.destroy(seen.ref)
    assert family.members() == []


async def test_a_guest_that_does_not_start_leaves_nothing(fresh_place):
    class Mute(ReferenceProvider):
        def _argv(self, record: Record) -> tuple[str, ...]:
            return ("sh", "-c", "echo no such luck >&2; exit 1")

    provider = Mute(fresh_place)
    with pytest.raises(Broken, match="no such luck"):
        await provider.create("k", SPEC)
    assert [seen async for seen in provider.find({})] == []
    assert list((fresh_place / "sbx").iterdir()) == []


async def test_a_cancelled_creation_leaves_nothing(provider, fresh_place):
    creation = asyncio.create_task(provider.create("k", SPEC))
    while not list((fresh_place / "sbx").glob("*/guest.log")):
        await asyncio.sleep(0.001)
    creation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creation
    assert list((fresh_place / "sbx").iterdir()) == []
    assert processes_here(str(fresh_place)) == []


async def test_a_stranger_with_the_pid_of_a_dead_guest_is_left_alone(provider):
    seen = await provider.create("k", SPEC)
    record = provider._record(seen.ref)
    await record.family.end()
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        provider._records.write(replace(record, pid=stranger.pid))
        assert (await provider.observe(seen.ref)).state is SandboxState.FAILED
        await provider.destroy(seen.ref)
        await asyncio.sleep(0.05)
        assert stranger.returncode is None, "somebody else's process was killed"
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_creation_that_died_half_way_is_begun_anew(provider, fresh_place):
    seen = await provider.create("k", SPEC)
    records = provider._records
    records.write(replace(records.read(seen.ref.id), state=SandboxState.CREATING))
    again = await ReferenceProvider(fresh_place).create("k", SPEC)
    assert again.ref != seen.ref
    assert [one.ref async for one in provider.find({})] == [again.ref]
    await provider.destroy(again.ref)


def test_a_place_too_deep_for_sockets_is_refused_at_once(tmp_path):
    with pytest.raises(InvalidRequest, match="too long a path"):
        ReferenceProvider(tmp_path / ("x" * 100))
