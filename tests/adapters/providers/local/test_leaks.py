"""Two hundred sandboxes come, work and go; what is left afterwards is what was there before."""

import asyncio
import os
from pathlib import Path

import pytest

from paddock.adapters.providers.local.provider import LocalProvider
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.local.conftest import Installation
from tests.adapters.providers.local.traces import look

COUNT = 200


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def processes() -> dict[int, list[int]]:
    """Every process on this machine, under its parent."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    return children


def started() -> set[int]:
    """What this process started itself; what is below an engine of another test is not ours."""
    return set(processes().get(os.getpid(), []))


def descendants(pid: int) -> int:
    """Processes below the launcher: its helpers, and what it should have reaped."""
    children = processes()
    found, waiting = 0, [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += len(below)
        waiting += below
    return found


async def use_one(provider: LocalProvider, number: int) -> None:
    seen = await provider.create(f"leak-{number}", SandboxSpec(template="tiny"))
    async with Guest(await provider.guest(seen.ref)) as guest:
        await guest.files.write("/home/user/file", b"x" * 10_000)
        result = await guest.exec(["sh", "-c", "sleep 300 & echo $((6 * 7))"])
        assert result.stdout == b"42\n"
    await provider.destroy(seen.ref)


async def test_two_hundred_sandboxes_leave_nothing(installation: Installation) -> None:
    async with installation.opened() as provider:
        await use_one(provider, -1)
        launcher = provider._parts.launch._process
        assert launcher is not None
        traces = look(installation.data_dir)
        before = descriptors(), descriptors(launcher.pid), descendants(launcher.pid)
        ours = started()
        disk = os.statvfs(installation.data_dir / "pool").f_bfree

        numbers = iter(range(COUNT))

        async def worker() -> None:
            for number in numbers:
                await use_one(provider, number)

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(worker())

        assert look(installation.data_dir) == traces
        await asyncio.sleep(0.2)
        after = descriptors(), descriptors(launcher.pid), descendants(launcher.pid)
        assert after[0] <= before[0] + 3  # pooled threads and their wake-up pipes come and stay
        assert after[1] == before[1]
        assert after[2] == before[2]
        assert started() <= ours
        os.sync()
        await asyncio.sleep(1)
        assert abs(os.statvfs(installation.data_dir / "pool").f_bfree - disk) * 4096 < 32 << 20
    installation.assert_no_traces()


pytestmark = [pytest.mark.timeout(300), pytest.mark.proves("L5", "L12")]
