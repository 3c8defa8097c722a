"""Upload a file and download it again by the SDK, and tell how much memory that took.

A program, because only a process of its own can be measured:
`python -m tests.interfaces.client.transfer URL TOKEN SANDBOX SOURCE PLACE TARGET`
"""

import asyncio
import json
import sys
from pathlib import Path

from paddock import AsyncSandbox, Server


def peak_kib() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1])


async def main(url: str, token: str, sandbox: str, source: str, place: str, target: str) -> None:
    told: list[tuple[int, int | None]] = []
    async with Server(url, token) as server:
        files = (await AsyncSandbox.connect(sandbox, server=server)).files
        Path("/proc/self/clear_refs").write_text("5")
        before = peak_kib()
        await files.upload(source, place, progress=lambda done, of: told.append((done, of)))
        await files.download(place, target)
    print(json.dumps({"grown_kib": peak_kib() - before, "told": told[-1]}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
