"""Programs that we start and that must not outlive us."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from paddock.adapters.providers.local.templates.programs import ProgramFailed, run

from ..storage.killing import killed_at


def lives(marker: str) -> bool:
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if marker.encode() in (process / "cmdline").read_bytes():
                    return True
            except OSError:
                continue
    return False


def assert_gone(marker: str) -> None:
    deadline = time.monotonic() + 5
    while lives(marker):
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def test_output_is_returned_and_lines_of_standard_error_are_seen() -> None:
    lines: list[str] = []
    script = "echo out; printf 'one\\rtwo\\n\\nthree' >&2"
    assert await run(["sh", "-c", script], on_line=lines.append) == b"out\n"
    assert lines == ["one", "two"]


async def test_a_failure_keeps_the_last_twenty_lines() -> None:
    with pytest.raises(ProgramFailed) as caught:
        await run(["sh", "-c", "seq 100 >&2; exit 3"])
    assert caught.value.status == 3
    assert caught.value.tail == [str(number) for number in range(81, 101)]


@pytest.mark.usefixtures("as_root")
async def test_cancelling_ends_the_whole_tree() -> None:
    marker = f"{600 + os.getpid() / 1e6:.6f}"
    task = asyncio.create_task(run(["sh", "-c", f"setsid sleep {marker} & wait"]))
    while not lives(marker):
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_gone(marker)


@pytest.mark.usefixtures("as_root")
def test_when_we_are_killed_the_whole_tree_ends() -> None:
    marker = f"{700 + os.getpid() / 1e6:.6f}"

    async def start_and_die() -> None:
        task = asyncio.create_task(run(["sh", "-c", f"setsid sleep {marker} & wait"]))
        while not lives(f"sleep\0{marker}"):
            await asyncio.sleep(0.02)
        os.kill(os.getpid(), 9)
        await task

    assert killed_at(0, lambda: asyncio.run(start_and_die()))
    assert_gone(f"sleep\0{marker}")
