"""Whoever stops does not wait for the last file of a large tree."""

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from paddock.adapters.providers.local.storage.programs import hurried, run, stoppable
from paddock.adapters.providers.local.storage.trees import remove_tree
from paddock.domain.errors import PaddockError


def sleeps() -> int:
    found = subprocess.run(["pgrep", "-fc", "^sleep 4711$"], capture_output=True, check=False)
    return int(found.stdout)


async def until(holds) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_cancellation_ends_the_program_and_comes_through() -> None:
    ended = []

    def work() -> None:
        try:
            run(["sleep", "4711"])
        finally:
            ended.append(True)

    task = asyncio.create_task(stoppable(asyncio.to_thread(work)))
    await until(lambda: sleeps() == 1)
    before = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True], "the thread has ended before who waited for it goes on"
    assert time.monotonic() - before < 30
    assert sleeps() == 0


async def test_what_is_within_is_stopped_too_and_starts_nothing_more() -> None:
    async def inner() -> None:
        await stoppable(asyncio.to_thread(run, ["sleep", "4711"]))

    async def outer() -> None:
        try:
            await inner()
        except InterruptedError:
            await asyncio.to_thread(run, ["sleep", "4711"])

    task = asyncio.create_task(stoppable(outer()))
    await until(lambda: sleeps() == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleeps() == 0


async def test_a_failure_is_told_as_it_is_and_a_result_comes_back(tmp_path: Path) -> None:
    assert (await stoppable(asyncio.to_thread(run, ["echo", "x"]))).stdout == "x\n"
    with pytest.raises(FileNotFoundError):
        await stoppable(asyncio.to_thread(run, [str(tmp_path / "nothing")]))
    with pytest.raises(PaddockError):
        await stoppable(_fails())


async def _fails() -> None:
    raise PaddockError("no")


async def test_in_a_hurry_a_tree_is_left_to_a_program_of_its_own(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    for number in range(1000):
        (tree / "a" / str(number)).touch()
    with hurried(asyncio.CancelledError()):
        await asyncio.to_thread(remove_tree, tree)
    await until(lambda: not tree.exists())


async def test_a_removal_that_is_told_to_stop_goes_on_without_us(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for directory in range(60):
        (tree / str(directory)).mkdir(parents=True)
        for number in range(100):
            os.mknod(tree / str(directory) / str(number))
    task = asyncio.create_task(stoppable(asyncio.to_thread(remove_tree, tree)))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not tree.exists())


async def test_after_another_error_nothing_is_hurried(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with hurried(ValueError()):
        remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
