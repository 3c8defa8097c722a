"""Snapshots over HTTP: whose a name is, what replaces what, and what is still being taken."""

import asyncio
import time
from dataclasses import replace

import pytest

from paddock.domain.errors import Broken
from paddock.domain.ids import new_id
from paddock.domain.records import SnapshotRecord
from paddock.ports.provider import Ref
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable
from tests.databases import new_database


class Moody(SimulatedProvider):
    """Waits or fails where a test says so."""

    def __init__(self, place):
        super().__init__(place)
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.fault = self.late = None

    async def snapshot(self, ref, key, *, memory=False, ignore=()):
        self.begun.set()
        await self.go_on.wait()
        if self.fault:
            raise self.fault
        taken = await super().snapshot(ref, key, memory=memory, ignore=ignore)
        if self.late:
            raise self.late
        return taken

    async def keys(self):
        return {each.key async for each in self.snapshots()}


@pytest.fixture(scope="module")
async def provider():
    return []


@pytest.fixture
async def plane(provider):
    def opened(place):
        provider[:] = [Moody(place)]
        return provider[0]

    async with disposable(provider=opened) as made:
        yield made


@pytest.fixture
async def moody(plane, provider):
    return provider[0]


async def made(plane):
    answer = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    assert answer.status == 201, answer.body
    return answer.body


async def take(plane, box, key="", **wish):
    headers = {"Idempotency-Key": key} if key else {}
    return await plane.admin.post(f"/v1/sandboxes/{box['id']}/snapshots", wish, headers=headers)


async def names(plane):
    return {each["name"]: each["id"] for each in (await plane.admin.get("/v1/snapshots"))["items"]}


async def write(plane, box, text):
    cmd = {"cmd": ["sh", "-c", f"echo {text} > note"]}
    assert (await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", cmd))["exit_code"] == 0


async def note_in(plane, snapshot):
    copy = (await plane.admin.post("/v1/sandboxes", {"snapshot": snapshot})).body
    ran = await plane.admin.post(f"/v1/sandboxes/{copy['id']}/exec", {"cmd": ["cat", "note"]})
    await plane.admin.delete(f"/v1/sandboxes/{copy['id']}?force=true")
    return ran["stdout"].strip()


@pytest.mark.parametrize("again", [False, True], ids=["plainly", "replacing"])
async def test_a_name_of_another_sandbox_is_never_taken_away(plane, moody, again):
    one, other = await made(plane), await made(plane)
    theirs = (await take(plane, one, name="gold")).body
    refused = await take(plane, other, name="gold", replace=again)
    assert refused.status == 409
    assert f"belongs to a snapshot of another sandbox, {one['name']}" in refused.error["message"]
    assert "paddock snapshot rm gold" in refused.error["remediation"]
    await plane.admin.delete(f"/v1/sandboxes/{one['id']}?force=true")
    refused = await take(plane, other, name="gold", replace=again)
    assert f"{one['name']}, which has been removed since" in refused.error["message"]
    assert await names(plane) == {"gold": theirs["id"]}
    assert await moody.keys() == {theirs["id"]}


@pytest.mark.proves("N6")
async def test_a_replacement_is_there_before_the_old_one_goes(plane, moody):
    box = await made(plane)
    await write(plane, box, "old")
    old = (await take(plane, box, name="gold")).body
    refused = await take(plane, box, name="gold")
    assert (refused.status, old["id"] in refused.error["message"]) == (409, True)
    await write(plane, box, "new")
    moody.begun.clear()
    moody.go_on.clear()
    replacing = asyncio.create_task(take(plane, box, name="gold", replace=True))
    await asyncio.wait_for(moody.begun.wait(), 10)
    assert (await plane.admin.get("/v1/snapshots/gold"))["id"] == old["id"]
    assert await note_in(plane, "gold") == "old"
    moody.go_on.set()
    new = await replacing
    assert (new.status, new["name"]) == (201, "gold")
    assert await names(plane) == {"gold": new["id"]}
    assert await moody.keys() == {new["id"]}
    assert await note_in(plane, "gold") == "new"
    nameless = await take(plane, box, replace=True)
    assert nameless.status == 400


@pytest.mark.proves("N6")
@pytest.mark.parametrize("when", ["fault", "late"])
async def test_a_replacement_that_fails_leaves_the_old_one_and_nothing_else(plane, moody, when):
    box = await made(plane)
    old = (await take(plane, box, name="gold")).body
    setattr(moody, when, Broken("the disk is on fire"))
    assert (await take(plane, box, "k", name="gold", replace=True)).status >= 500
    assert await names(plane) == {"gold": old["id"]}
    setattr(moody, when, None)
    await plane.rounds.reconciler.look()
    assert await moody.keys() == {old["id"]}, "what the provider took all the same is gone as well"
    new = await take(plane, box, "k", name="gold", replace=True)
    assert (new.status, await names(plane)) == (201, {"gold": new["id"]})


async def test_a_replaced_one_that_cannot_be_deleted_now_is_deleted_later(plane, moody):
    box = await made(plane)
    old = (await take(plane, box, name="gold")).body
    delete, moody.delete_snapshot = moody.delete_snapshot, broken
    new = await take(plane, box, name="gold", replace=True)
    assert (new.status, (await plane.admin.get("/v1/snapshots/gold"))["id"]) == (201, new["id"])
    assert old["id"] in (await names(plane)).values(), "it is shown as long as it is there"
    moody.delete_snapshot = delete
    await plane.rounds.housekeeping.look()
    assert await names(plane) == {"gold": new["id"]}
    assert await moody.keys() == {new["id"]}


async def broken(ref):
    raise Broken(f"{ref.id} cannot be deleted")


@pytest.mark.proves("N1")
async def test_one_that_is_being_taken_says_so_and_cannot_be_deleted_meanwhile(plane, moody):
    box = await made(plane)
    moody.begun.clear()
    moody.go_on.clear()
    taking = asyncio.create_task(take(plane, box, name="half", keep_s=0.001))
    await asyncio.wait_for(moody.begun.wait(), 10)
    (listed,) = (await plane.admin.get("/v1/snapshots"))["items"]
    assert (listed["name"], listed["state"]) == ("half", "taking")
    for answer in (
        await plane.admin.get("/v1/snapshots/half"),
        await plane.admin.delete("/v1/snapshots/half"),
        await plane.admin.delete(f"/v1/snapshots/{listed['id']}"),
        await plane.admin.post("/v1/sandboxes", {"snapshot": "half"}),
        await plane.admin.post(f"/v1/sandboxes/{box['id']}/restore", {"snapshot": "half"}),
    ):
        assert (answer.status, "is being taken" in answer.error["message"]) == (409, True)
    await plane.rounds.housekeeping.look()  # its time is up, but it is not there yet
    await plane.rounds.reconciler.look()  # and somebody is at it
    moody.go_on.set()
    done = await taking
    assert (done.status, done["state"]) == (201, "ready")
    assert await moody.keys() == {done["id"]}
    assert (await plane.admin.delete("/v1/snapshots/half")).status == 204
    assert await moody.keys() == set()


@pytest.mark.proves("N1")
async def test_one_whose_record_is_gone_when_it_is_there_leaves_no_disk(plane, moody):
    box = await made(plane)
    moody.begun.clear()
    moody.go_on.clear()
    taking = asyncio.create_task(take(plane, box, name="half"))
    await asyncio.wait_for(moody.begun.wait(), 10)
    (listed,) = (await plane.admin.get("/v1/snapshots"))["items"]
    await plane.services.store.write(lambda tx: tx.snapshots.remove(listed["id"]))
    moody.go_on.set()
    assert (await taking).status == 404
    await plane.rounds.reconciler.look()
    assert await moody.keys() == set()


@pytest.mark.proves("P14")
async def test_a_key_whose_snapshot_was_removed_makes_no_other(plane, moody):
    box = await made(plane)
    first = await take(plane, box, "same", name="one")
    assert (await take(plane, box, "same", name="one"))["id"] == first["id"]
    assert (await plane.admin.delete("/v1/snapshots/one")).status == 204
    for _ in range(2):
        again = await take(plane, box, "same", name="one")
        assert again.status == 409
        assert f"{first['id']}, which has been removed" in again.error["message"]
    assert await names(plane) == {}
    assert await moody.keys() == set()
    assert (await take(plane, box, "other", name="one")).status == 201


@pytest.mark.proves("N1")
async def test_of_several_processes_one_settles_what_another_died_at(postgres):
    async with (
        new_database(postgres) as database,
        disposable(provider=SimulatedProvider, database=database) as plane,
    ):
        box, store = await made(plane), plane.services.store
        sandbox = await store.read(lambda tx: tx.sandboxes.get("", box["id"]))
        blank = SnapshotRecord(
            "", sandbox.team_id, "", sandbox.provider, 1.0, sandbox_id=sandbox.id
        )
        ids = {name: new_id("snp") for name in ("was-taken", "was-not", "under-way")}

        def begun(tx):
            for name, each in ids.items():
                until = time.time() + (60 if name == "under-way" else -1)
                tx.values.put(f"lease.{each}", {"by": "prc_another", "until": until})
                tx.snapshots.add(replace(blank, id=each, name=name))

        await store.write(begun)
        provider = plane.services.providers.get(sandbox.provider)
        await provider.snapshot(Ref(sandbox.provider, sandbox.ref), ids["was-taken"])
        await plane.rounds.reconciler.look()
        found = (await plane.admin.get("/v1/snapshots"))["items"]
        states = {each["name"]: each["state"] for each in found}
        assert states == {"was-taken": "ready", "under-way": "taking"}
        left = await store.read(lambda tx: tx.values.all("lease."))
        assert set(left) == {f"lease.{ids['under-way']}"}
