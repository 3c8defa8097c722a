"""Two control planes on one database: neither takes the other's work for nobody's."""

import asyncio
import time

import pytest
from sqlalchemy import update

from paddock.adapters.store.schema import sandbox as table
from paddock.services.activity import JUST_NOW_S
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import beside, disposable

EVERY_DATABASE = "test"


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


@pytest.mark.timeout(120)
async def test_what_one_server_has_open_is_seen_at_work_by_the_other(shared, tmp_path):
    """However long it is open: a preview's socket, of which the sandbox itself knows nothing."""
    place = tmp_path / "machines"
    place.mkdir()

    def provider(_):
        return SimulatedProvider(place)

    async with disposable(provider=provider, database=shared) as one:
        box = await make(one, lifetime={"idle_timeout_s": 3600})
        async with beside(one, provider, shared) as other:
            store, seen = other.services.store, other.services.inside._activity
            with one.services.inside._activity.working(box["id"], "preview"):
                await store.write(lambda tx: aged(tx, box["id"]))
                await one.rounds.reaper.look()
                await store.write(lambda tx: aged(tx, box["id"]))
                await one.rounds.reaper.look()
            record = await store.read(lambda tx: tx.sandboxes.get("", box["id"]))
            assert time.time() - record.clock.active_at < JUST_NOW_S
            assert seen.known(record.id, record.clock.active_at) == record.clock.active_at
            pressure = other.rounds.pressure
            pressure._here = frozenset({record.provider})
            (candidate,) = await pressure._candidates()
            assert candidate.working
            await store.write(lambda tx: aged(tx, box["id"]))
            (candidate,) = await pressure._candidates()
            assert not candidate.working


def aged(tx, sandbox_id):
    """As if its last touch were long ago."""
    current = tx.sandboxes.get("", sandbox_id)
    tx._connection.execute(
        update(table).where(table.c.id == sandbox_id).values(active_at=current.created_at - 9000)
    )
