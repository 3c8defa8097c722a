"""Locks hold across processes, and none is left behind."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from paddock.adapters.providers.host.owner import Locks

pytestmark = pytest.mark.timeout(60)

REPOSITORY = Path(__file__).parents[4]
# Reads a number, lets the others run, writes the number plus one: wrong unless it is alone.
COUNT = """
import asyncio, sys
from pathlib import Path
from paddock.adapters.providers.host.owner import Locks

async def add(locks, number):
    async with locks.hold("ref"):
        value = int(number.read_text())
        await asyncio.sleep(0)
        number.write_text(str(value + 1))

async def main(directory, number):
    locks = Locks(Path(directory))
    await asyncio.gather(*(add(locks, Path(number)) for _ in range(100)))

asyncio.run(main(*sys.argv[1:]))
"""
HOLD = """
import asyncio, sys
from pathlib import Path
from paddock.adapters.providers.host.owner import Locks

async def main(directory):
    async with Locks(Path(directory)).hold("ref"):
        print("held", flush=True)
        await asyncio.sleep(300)

asyncio.run(main(sys.argv[1]))
"""


async def start(program: str, *arguments: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *map(str, arguments)),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
    )


async def test_one_at_a_time_over_all_processes_though_the_file_comes_and_goes(
    tmp_path: Path,
) -> None:
    directory, number = tmp_path / "locks", tmp_path / "number"
    directory.mkdir()
    number.write_text("0")
    processes = [await start(COUNT, directory, number) for _ in range(3)]
    for process in processes:
        await process.communicate()
        assert process.returncode == 0
    assert number.read_text() == "300"
    assert os.listdir(directory) == []


async def test_a_lock_is_gone_after_an_error_and_after_a_cancelled_wait(tmp_path: Path) -> None:
    locks, others = Locks(tmp_path), Locks(tmp_path)
    with pytest.raises(LookupError):
        async with locks.hold("ref"):
            raise LookupError
    assert os.listdir(tmp_path) == []
    for waiting in (locks, others):
        async with locks.hold("ref"):
            wait = asyncio.create_task(_hold(waiting))
            await asyncio.sleep(0.02)
            wait.cancel()
            await asyncio.gather(wait, return_exceptions=True)
    assert os.listdir(tmp_path) == []
    assert not locks._turns._locks


async def _hold(locks: Locks) -> None:
    async with locks.hold("ref"):
        return


async def test_only_locks_of_the_dead_are_swept(tmp_path: Path) -> None:
    locks = Locks(tmp_path)
    holder = await start(HOLD, tmp_path)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    locks.sweep()
    assert os.listdir(tmp_path) == ["ref"]
    holder.send_signal(signal.SIGKILL)
    await holder.communicate()
    assert os.listdir(tmp_path) == ["ref"]
    locks.sweep()
    assert os.listdir(tmp_path) == []
