"""How much memory a control plane takes, in a process of its own.

This file is also the program: it serves until its standard input ends.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.control_plane import Client, disposable

MIB = 1 << 20


@dataclass
class ServerProcess:
    """A control plane on the reference provider."""

    pid: int
    admin: Client

    def forget_peak(self) -> None:
        """Measure from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_mib(self) -> float:
        """The most memory that the process had at a time."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        line = next(line for line in status if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024


@asynccontextmanager
async def server_process() -> AsyncIterator[ServerProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.interfaces.api.memory",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            ready = json.loads(await process.stdout.readline())
        async with aiohttp.ClientSession() as session:
            yield ServerProcess(ready["pid"], Client(ready["url"], ready["token"], session))
    finally:
        process.stdin.close()
        await process.wait()


async def _serve() -> None:
    async with disposable() as plane:
        ready = {"pid": os.getpid(), "url": plane.url, "token": plane.admin.token}
        print(json.dumps(ready), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
