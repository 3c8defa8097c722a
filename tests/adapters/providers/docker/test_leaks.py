"""Many sandboxes made, used and destroyed leave no trace, on the engine or in this process."""

import asyncio
import gc
import os
from pathlib import Path

import pytest

from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.guest_client import Guest
from tests.adapters.providers.docker.conftest import Installation
from tests.adapters.providers.docker.faulty import SPECS

AT_ONCE = 8


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("base_image")
@pytest.mark.proves("L5")
@pytest.mark.parametrize(("guest", "many"), [("joined", 100), ("packed", 24)])
async def test_many_sandboxes_leave_nothing(
    installation: Installation, guest: str, many: int
) -> None:
    async with installation.opened(guest=guest) as provider:
        await _use(provider, guest, "warm-up")
        gc.collect()
        before = _held()
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with turns:
                await _use(provider, guest, f"number-{number}")

        await asyncio.gather(*(one(number) for number in range(many)))
        gc.collect()
        await asyncio.sleep(0.5)
        after = _held()
        assert after[0] <= before[0] + AT_ONCE, "descriptors of this process"
        assert after[1] == before[1], "tasks of this process"
        left = await installation.left()
        assert set(left) == {"owners", "directories"}, "of this process"


async def _use(provider: DockerProvider, guest: str, key: str) -> None:
    seen = await provider.create(key, SPECS[guest])
    async with Guest(await provider.guest(seen.ref)) as client:
        assert (await client.exec(["echo", "on"])).text == "on\n"
    await provider.destroy(seen.ref)


def _held() -> tuple[int, int]:
    """Open descriptors, of which connections to the engine may be kept, and running tasks."""
    return len(os.listdir(Path("/proc/self/fd"))), len(asyncio.all_tasks())
