"""Two control planes on one database: neither takes the other's work for nobody's."""

import asyncio

import pytest

from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import beside, disposable

EVERY_DATABASE = True


class Slow(SimulatedProvider):
    """One whose machines are there before it says so, for as long as it is held."""

    def __init__(self, place):
        super().__init__(place)
        self.held = asyncio.Event()
        self.free = asyncio.Event()
        self.free.set()

    async def create(self, key, spec):
        made = await super().create(key, spec)
        self.held.set()
        await self.free.wait()
        return made

    def hold(self):
        self.held.clear()
        self.free.clear()


@pytest.fixture
def shared(empty_database, tmp_path):
    """A file that others may write to as well, or a database on a server."""
    return empty_database or str(tmp_path / "shared.db")


async def make(plane, **wish):
    answer = await plane.admin.post("/v1/sandboxes", {"template": "plain", **wish})
    assert answer.status == 201, answer.body
    return answer.body


@pytest.mark.timeout(120)
async def test_a_server_that_starts_during_a_restore_leaves_the_new_machine_alone(shared, tmp_path):
    place = tmp_path / "machines"
    place.mkdir()
    slow = Slow(place)
    async with disposable(provider=lambda _: slow, database=shared) as one:
        box = await make(one)
        path = f"/v1/sandboxes/{box['id']}"
        await one.admin.post(f"{path}/exec", {"cmd": ["sh", "-c", "echo good > note"]})
        assert (await one.admin.post(f"{path}/snapshots", {"name": "s"})).status == 201
        slow.hold()
        restoring = asyncio.create_task(one.admin.post(f"{path}/restore", {"snapshot": "s"}))
        await slow.held.wait()
        async with beside(one, lambda _: SimulatedProvider(place), shared) as other:
            slow.free.set()
            assert (await restoring)["state"] == "running"
            for plane in (one, other):
                await plane.rounds.reconciler.look()
                said = await plane.admin.post(f"{path}/exec", {"cmd": ["cat", "note"]})
                assert (said.status, said["stdout"]) == (200, "good\n"), said.body
            found = [seen async for seen in slow.find({})]
            assert len(found) == 1, "the machine before it is gone"
