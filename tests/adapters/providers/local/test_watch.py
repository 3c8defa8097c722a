"""What an open provider looks at again and again, on the real host."""

import asyncio
import subprocess

import pytest

from paddock.adapters.providers.local.watch import watch_network
from paddock.domain.egress import OPEN
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.local.conftest import Installation

pytestmark = pytest.mark.timeout(60)


@pytest.mark.proves("P16")
async def test_a_fence_that_was_taken_down_comes_back_by_itself(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        await provider.create("k", SandboxSpec(template="tiny", egress=OPEN))
        network = provider._life.network
        watching = asyncio.create_task(watch_network(provider._life, 0.05))
        try:
            subprocess.run(["nft", "delete", "table", "inet", network.table], check=True)
            async with asyncio.timeout(20):
                while not await network._is_fenced():
                    await asyncio.sleep(0.05)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await installation.empty(provider)
    installation.assert_no_traces()
