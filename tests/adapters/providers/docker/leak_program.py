"""A control process that makes, uses and destroys many sandboxes: run as a program by a test.

    python -m tests.adapters.providers.docker.leak_program HOST RUN_ROOT INSTALLATION GUEST COUNT

It prints as JSON what it holds before and after. A process of its own, because a test process also
holds what other tests have opened.
"""

import asyncio
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.guest_client import Guest
from tests.adapters.providers.docker.conftest import Installation
from tests.adapters.providers.docker.faulty import SPECS

AT_ONCE = 8
_SETTLE_S = 10.0


async def _use(provider: DockerProvider, guest: str, key: str) -> None:
    seen = await provider.create(key, SPECS[guest])
    async with Guest(await provider.guest(seen.ref)) as client:
        assert (await client.exec(["echo", "on"])).text == "on\n"
    await provider.destroy(seen.ref)


def _held() -> dict[str, int]:
    """Open descriptors, of which connections to the engine may be kept, and running tasks."""
    gc.collect()
    return {"descriptors": len(os.listdir("/proc/self/fd")), "tasks": len(asyncio.all_tasks())}


async def main(host: str, run_root: str, name: str, guest: str, count: str) -> dict[str, Any]:
    installation = Installation(host, Path(run_root), name)
    async with installation.opened(guest=guest) as provider:
        await _use(provider, guest, "warm-up")
        before = _held()
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with turns:
                await _use(provider, guest, f"number-{number}")

        await asyncio.gather(*(one(number) for number in range(int(count))))
        until = asyncio.get_running_loop().time() + _SETTLE_S
        while _held()["tasks"] != before["tasks"] and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.1)
        left = await installation.left()
        return {"before": before, "after": _held(), "left": sorted(left)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:6]))))
