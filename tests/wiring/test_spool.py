"""A real sender and a real server, both killed again and again: nothing is lost or doubled."""

import asyncio
import os
import random
import sys

import pytest

from tests.wiring_server import server


class Sender:
    """The program that tells, begun again after it was killed; it never outlives the test."""

    def __init__(self, place, box, control, count):
        self._arguments = (str(place), box, control.url, control.admin.token, str(count))
        self.process = None

    async def start(self):
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.wiring.telling", *self._arguments),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd=os.getcwd(),
        )

    async def kill(self):
        if self.process.returncode is None:
            self.process.kill()
            await self.process.communicate()

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.kill()


async def told(client, box):
    """All of them in the order of the log."""
    found, cursor = [], ""
    while True:
        page = await client.get(
            f"/v1/events?subject={box}&kind=custom.step&limit=500&cursor={cursor}"
        )
        found += [each["data"]["n"] for each in page["items"]]
        cursor = page["next_cursor"]
        if not cursor:
            return found


@pytest.mark.parametrize(
    ("count", "kills"),
    [
        pytest.param(600, 3, marks=pytest.mark.soak),
        pytest.param(1500, 8, marks=pytest.mark.soak),
    ],
)
@pytest.mark.timeout(300)
@pytest.mark.proves("U8")
async def test_what_was_recorded_arrives_once_whoever_is_killed(tmp_path, count, kills):
    dice = random.Random(7)
    async with server() as control:
        made = await control.admin.post("/v1/sandboxes", {})
        box, place = made["id"], tmp_path / "spool.db"
        async with Sender(place, box, control, count) as sender:
            for turn in range(kills):
                await asyncio.sleep(dice.uniform(0.1, 0.8))
                if turn % 3 == 2 and sender.process.returncode is None:
                    await sender.kill()
                    await sender.start()
                await control.kill()
                await control.start()
            async with asyncio.timeout(120):
                _, errors = await sender.process.communicate()
            assert sender.process.returncode == 0, errors.decode()
        numbers = await told(control.admin, box)
        assert len(numbers) >= count
        assert sorted(numbers) == list(range(1, max(numbers) + 1))
        (source,) = (await control.admin.get(f"/v1/sandboxes/{box}/events/sources"))["items"]
        assert (source["last_seq"], source["missing"]) == (max(numbers), [])
