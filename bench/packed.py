"""The packed guest alone: how soon it answers after its start, and what it costs to have one."""

import asyncio
import contextlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import docker, rows
from bench.measurements import Stage, measures
from paddock.guest import pack

_REQUEST = b"GET /health HTTP/1.1\r\nHost: guest\r\n\r\n"
_COUNT = 10


@measures(
    "packed guest, process start to health",
    f"packed guest, idle, memory (PSS), {_COUNT} of them",
)
async def guests(_: None) -> list[rows.Row]:
    with tempfile.TemporaryDirectory(prefix="paddock-bench-packed-") as home:
        archive = pack.build(f"{home}/guest.zip")
        started: list[subprocess.Popen[bytes]] = []
        try:
            times = [await _start(archive, Path(home), started) for _ in range(_COUNT)]
            await asyncio.sleep(1)
            memory = sum(docker.pss_kib(guest.pid) for guest in started) / _COUNT / 1024
        finally:
            for guest in started:
                guest.send_signal(signal.SIGKILL)
                guest.wait()
    return [
        rows.at_most(statistics.median(times), 60, "ms"),
        rows.at_most(memory, 12, "MB"),
    ]


async def _start(archive: str, home: Path, guests: list[subprocess.Popen[bytes]]) -> float:
    """Milliseconds from the start of the process to its first answer."""
    socket = home / f"{len(guests)}.sock"
    state = home / f"state-{len(guests)}"
    start = time.perf_counter()
    guests.append(
        subprocess.Popen(
            [sys.executable, "-I", "-S", archive, "--socket", socket, "--state-dir", state],
            env={},
        )
    )
    while True:
        try:
            reader, writer = await asyncio.open_unix_connection(str(socket))
            break
        except OSError:
            await asyncio.sleep(0.0005)
    writer.write(_REQUEST)
    answer = await reader.readuntil(b"\r\n\r\n")
    elapsed = (time.perf_counter() - start) * 1e3
    writer.close()
    assert b" 204 " in answer
    return elapsed


STAGES = (Stage("packed guests", contextlib.nullcontext, (guests,)),)
