"""Much of everything, in bounded memory."""

import asyncio
import os
import statistics
import time
from pathlib import Path

import pytest

from paddock.guest_client import Guest
from paddock.guest_client.commands import Output, Started
from paddock.guest_client.runs import Chunk, RunExit
from tests.guest.conftest import StartGuest
from tests.guest.raw import Raw, frame

pytestmark = pytest.mark.timeout(120)

MUCH = pytest.mark.parametrize("much", [96 << 20, pytest.param(512 << 20, marks=pytest.mark.soak)])
"""More than a guest may hold in memory."""


def _status(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@MUCH
async def test_much_output_of_a_run_goes_to_disk_in_bounded_memory(
    start_guest: StartGuest, much: int
) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        await guest.runs.start("much", ["head", "-c", str(much), "/dev/zero"], log_cap=32 << 20)
        size = 0
        async for event in guest.runs.tail("much"):
            if isinstance(event, Chunk):
                size = event.offset + len(event.data)
                if size % (4 << 20) < len(event.data):
                    await guest.runs.ack("much", {"stdout": size})
            else:
                assert isinstance(event, RunExit)
                assert event.exit_code == 0
        assert size == much
    assert _status(form.host_pid(), "VmHWM") < 48 << 20


@MUCH
async def test_much_output_is_streamed_in_bounded_memory(
    start_guest: StartGuest, much: int
) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        size = 0
        async for event in guest.start(["head", "-c", str(much), "/dev/zero"]):
            if isinstance(event, Output):
                size += len(event.data)
        assert size == much
    assert _status(form.host_pid(), "VmHWM") < 48 << 20


async def test_a_reader_that_stands_still_holds_up_the_program_and_not_the_guest(
    start_guest: StartGuest,
) -> None:
    form = await start_guest()
    async with Raw(form.address) as raw, Guest(form.address) as guest:
        body = frame(b'{"process":{"cmd":"sh","args":["-c","yes | tee counted"]}}')
        _, writer = await raw.connection()
        writer.write(
            b"POST /process.Process/Start HTTP/1.1\r\nhost: g\r\n"
            b"content-type: application/connect+json\r\ncontent-length: %d\r\n\r\n"
            % len(body)
            + body
        )
        before = await _stood_still(guest, "counted")
        assert _status(form.host_pid(), "VmRSS") < 40 << 20
        # With the reader gone nothing holds it up any more.
        writer.transport.abort()
        async with asyncio.timeout(10):
            while (await guest.files.stat("counted")).size == before:
                await asyncio.sleep(0.05)
        await guest.exec(["pkill", "-9", "yes"])


async def _stood_still(guest: Guest, path: str) -> int:
    """The size of a file that has not grown for a while, though its program runs."""
    size = 0
    async with asyncio.timeout(20):
        while True:
            await asyncio.sleep(0.5)
            found = await guest.exec(["stat", "-c", "%s", path])
            if found.exit_code == 0 and 0 < int(found.text) == size:
                return size
            size = int(found.text or 0)


async def test_a_thousand_idle_streams_leave_the_guest_quick(start_guest: StartGuest) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        await guest.runs.start("idle", ["sh", "-c", "read line; echo $line"], keep_stdin_open=True)
        tails = [asyncio.create_task(_follow(guest, "idle")) for _ in range(1000)]
        async with asyncio.timeout(30):
            while (await guest.usage()).streams < 1000:
                await asyncio.sleep(0.1)
        # Its processor time: how long it takes says more about the other tests.
        before = _processor_s(form.host_pid())
        for _ in range(50):
            await guest.exec(["true"])
        assert _processor_s(form.host_pid()) - before < 50 * 0.05
        assert _status(form.host_pid(), "VmRSS") < 96 << 20
        await guest.runs.send_input("idle", b"hello\n")
        async with asyncio.timeout(30):
            assert set(await asyncio.gather(*tails)) == {b"hello\n"}


async def _follow(guest: Guest, key: str) -> bytes:
    events = [event async for event in guest.runs.tail(key)]
    return b"".join(event.data for event in events if isinstance(event, Chunk))


async def test_output_that_nobody_listens_to_holds_up_nobody(guest: Guest) -> None:
    events = guest.start(["sh", "-c", "head -c 50000000 /dev/zero; touch through"])
    assert isinstance(await anext(events), Started)
    await events.aclose()
    async with asyncio.timeout(20):
        while (await guest.exec(["test", "-e", "through"])).exit_code != 0:
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.alone
async def test_commands_are_started_fast(start_guest: StartGuest) -> None:
    """Measured against a plain spawn in the same minute, because machines are noisy."""
    form = await start_guest()
    async with Guest(form.address) as guest:
        times, plain = [], []
        for _ in range(200):
            began = time.perf_counter()
            await guest.exec(["true"])
            times.append(time.perf_counter() - began)
            began = time.perf_counter()
            os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
            plain.append(time.perf_counter() - began)
        began = time.perf_counter()
        for _ in range(60):
            await asyncio.gather(*(guest.exec(["true"]) for _ in range(16)))
        rate = 960 / (time.perf_counter() - began)
    print(f"exec p50 {statistics.median(times) * 1e3:.2f} ms, {rate:.0f}/s with 16 clients")
    assert statistics.median(times) < 8 * statistics.median(plain)
    assert rate > 0.3 / statistics.median(plain)
