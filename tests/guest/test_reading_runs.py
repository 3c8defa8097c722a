"""Runs read call by call: all streams at once, and the end with the last of them."""

import asyncio
import time

import pytest

from paddock.domain.errors import InvalidRequest, NotFound
from paddock.guest_client import Guest
from paddock.guest_client.runs import Chunk, Gap, RunExit

pytestmark = pytest.mark.timeout(60)


async def _read(guest: Guest, key: str) -> tuple[dict[str, bytes], RunExit]:
    places, seen = {"stdout": 0, "stderr": 0}, {"stdout": b"", "stderr": b""}
    while True:
        told = await guest.runs.read(key, places, wait_s=10)
        for stream, event in told.output:
            assert isinstance(event, Chunk)
            assert event.offset == places[stream]
            seen[stream] += event.data
            places[stream] += len(event.data)
        if told.exit is not None:
            return seen, told.exit


async def test_both_streams_and_the_end_come_together(guest: Guest) -> None:
    await guest.runs.start("d1", ["sh", "-c", "echo out; echo err >&2; exit 4"])
    seen, ended = await _read(guest, "d1")
    assert seen == {"stdout": b"out\n", "stderr": b"err\n"}
    assert ended.exit_code == 4
    again = await guest.runs.read("d1", {"stdout": 0, "stderr": 0})
    assert dict(again.output) == {"stdout": Chunk(0, b"out\n"), "stderr": Chunk(0, b"err\n")}
    assert again.exit == ended
    rest = await guest.runs.read("d1", {"stdout": 4, "stderr": 4})
    assert (rest.output, rest.exit) == ((), ended)
    await guest.runs.ack("d1")


async def test_more_than_one_answer_holds_is_read_in_pieces(guest: Guest) -> None:
    script = "import sys; sys.stdout.write('x' * 3_000_000); sys.stderr.write('y' * 700_000)"
    await guest.runs.start("d2", ["python3", "-c", script])
    seen, ended = await _read(guest, "d2")
    assert {stream: len(data) for stream, data in seen.items()} == {
        "stdout": 3_000_000,
        "stderr": 700_000,
    }
    assert ended.exit_code == 0
    await guest.runs.ack("d2")


async def test_an_empty_answer_waits_for_something_to_tell(guest: Guest) -> None:
    await guest.runs.start("d3", ["sh", "-c", "sleep 0.5; echo late; sleep 30"])
    nothing = await guest.runs.read("d3", {"stdout": 0, "stderr": 0})
    assert (nothing.output, nothing.exit) == ((), None)
    late = await guest.runs.read("d3", {"stdout": 0, "stderr": 0}, wait_s=10)
    assert late.output == (("stdout", Chunk(0, b"late\n")),)
    began = time.monotonic()
    silent = await guest.runs.read("d3", {"stdout": 5, "stderr": 0}, wait_s=0.3)
    assert silent.output == ()
    assert time.monotonic() - began >= 0.25
    await guest.runs.end("d3", grace=0)
    _, ended = await _read(guest, "d3")
    assert ended.exit_code == 137
    await guest.runs.ack("d3")


async def test_who_goes_away_leaves_nothing_waiting(guest: Guest) -> None:
    await guest.runs.start("d4", ["sleep", "30"])
    waiting = [
        asyncio.create_task(guest.runs.read("d4", {"stdout": 0}, wait_s=30)) for _ in range(50)
    ]
    await asyncio.sleep(0.3)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (await guest.exec(["echo", "here"])).text == "here\n"
    await guest.runs.end("d4", grace=0)
    await _read(guest, "d4")
    await guest.runs.ack("d4")


async def test_what_was_let_go_is_told_as_a_gap(guest: Guest) -> None:
    command = ["sh", "-c", "head -c 1000000 /dev/zero"]
    await guest.runs.start("d5", command, log_cap=65536, drop_when_full=True)
    while (await guest.runs.get("d5")).exit is None:
        await asyncio.sleep(0.02)
    place, gaps, told = 0, 0, await guest.runs.read("d5", {"stdout": 0, "stderr": 0})
    while told.output:
        for _, event in told.output:
            gaps += isinstance(event, Gap)
            place = event.end if isinstance(event, Gap) else event.offset + len(event.data)
        told = await guest.runs.read("d5", {"stdout": place, "stderr": 0})
    assert (gaps, place) == (1, 1_000_000)
    assert told.exit is not None
    await guest.runs.ack("d5")


async def test_a_place_beyond_the_end_and_an_unknown_run_are_refused(guest: Guest) -> None:
    await guest.runs.start("d6", ["true"])
    with pytest.raises(InvalidRequest, match="ends at 0"):
        await guest.runs.read("d6", {"stdout": 1})
    with pytest.raises(NotFound):
        await guest.runs.read("nothing", {"stdout": 0})
    await _read(guest, "d6")
    await guest.runs.ack("d6")
