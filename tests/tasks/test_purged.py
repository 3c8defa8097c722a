"""Somebody who is forgotten is so with what agents did for them, and with the evidence."""

import asyncio
from dataclasses import replace

import pytest

from paddock.domain.audit import first_break
from paddock.domain.message import Mode
from paddock.domain.task import TaskState
from paddock.domain.task_wish import Workspace
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable
from tests.interfaces.api.test_purges import ended, everything
from tests.tasks.conftest import SETTINGS, Working, at_work, operator

pytestmark = pytest.mark.timeout(180)
OWNER = "erika@mustermann.example"
APP = "erikas-shop"
S = TaskState


@pytest.fixture
async def working():
    provider = SimulatedProvider
    async with disposable(provider=provider, settings=SETTINGS) as plane, at_work(plane):
        yield Working(plane, await operator(plane))


async def create(working, **wish):
    made = await working.plane.admin.post("/v1/sandboxes", {"template": "plain", **wish})
    assert made.status == 201, made.body
    return made.body


async def purged(working, **wish):
    begun = await working.plane.admin.post("/v1/purge", wish)
    assert begun.status == 202, begun.body
    async with asyncio.timeout(90):
        while True:
            try:
                return await ended(working.plane, begun)
            except TimeoutError:
                continue


async def nothing_is_left(working):
    assert "erika" not in (await everything(working.plane)).lower()
    chain = await working.plane.services.store.read(lambda tx: tx.audit.after(0, 10_000))
    assert first_break(chain) is None


@pytest.mark.proves("U12")
async def test_what_an_agent_did_for_an_owner_goes_with_them(working):
    admin = working.plane.admin
    box = await create(working, name="erikas-box", owner=OWNER)
    other = await working.done({"say": "for another"})
    task = await working.begin(
        {"say": "erikas plan"}, {"await": 1}, workspace=Workspace(sandbox=box["id"])
    )
    await working.until(task, lambda now: now.state is S.RUNNING)
    sent = await admin.post(
        f"/v1/tasks/{task.id}/messages",
        {"text": "erikas words", "mode": Mode.NOW},
        headers={"idempotency-key": "erikas-key"},
    )
    assert sent.status == 201, sent.body
    task = await working.ended(task)
    assert "erikas plan" in await working.said(task)

    plan = await admin.post("/v1/purge", {"owner": OWNER, "dry_run": True})
    assert plan["removed"]["tasks"] == 1
    done = await purged(working, owner=OWNER, force=True)
    assert (done["state"], done["removed"]["tasks"]) == ("done", 1)
    assert (await admin.get(f"/v1/tasks/{task.id}")).status == 404
    told = await working.events(task)
    assert {"task.completed", "agent.message"} <= {each.kind for each in told}
    assert all(each.data["forgotten"] for each in told)
    await nothing_is_left(working)
    assert (await working.get(other)).result is not None
    assert await working.said(other) == ["for another"]


@pytest.mark.slow
@pytest.mark.proves("U12")
async def test_one_that_is_at_work_ends_before_it_goes(working):
    box = await create(working, owner=OWNER)
    steps = [{"say": "erikas plan"}, {"await": 1}]
    task = await working.begin(*steps, workspace=Workspace(sandbox=box["id"]))
    await working.until(task, lambda now: now.state is S.RUNNING)
    refused = await working.plane.admin.post("/v1/purge", {"owner": OWNER})
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    assert f"task {task.id} is running in it" in refused.error["message"]
    assert not (await working.get(task)).is_cancelled
    done = await purged(working, owner=OWNER, force=True)
    assert (done["state"], done["removed"]["tasks"]) == ("done", 1)
    assert (await working.events(task))[-1].kind == "task.cancelled"
    await nothing_is_left(working)


@pytest.mark.slow
async def test_one_that_cannot_end_by_itself_ends_with_its_sandbox(working):
    """What was set aside nobody enters, also not to end an agent. The evidence goes too."""
    box = await create(working, name="erikas-box", owner=OWNER)
    steps = [{"say": "erikas plan"}, {"await": 1}]
    task = await working.begin(*steps, workspace=Workspace(sandbox=box["id"]))
    await working.until(task, lambda now: now.state is S.RUNNING)
    why = {"why": "erika takes too much"}
    aside = await working.plane.admin.call("PUT", f"/v1/quarantine/{box['id']}", why)
    assert aside.status == 200, aside.body
    assert aside["snapshot"]
    done = await purged(working, owner=OWNER, force=True)
    assert (done["state"], done["removed"]["snapshots"]) == ("done", 1)
    left = await working.plane.services.store.read(lambda tx: tx.values.all("quarantine."))
    assert not left
    await nothing_is_left(working)


@pytest.mark.slow
async def test_one_that_was_to_have_a_copy_goes_before_it_has_any(working):
    admin = working.plane.admin
    box = await create(working, app=APP)
    copy = await admin.post(f"/v1/sandboxes/{box['id']}/snapshots", {"name": "erikas-copy"})
    first = await working.begin({"say": "x"}, {"await": 1})
    places = (
        Workspace(fork=box["id"]),
        Workspace(snapshot=copy["name"]),
        Workspace(template="plain", app=APP),
    )
    waiting = [
        await working.begin({"say": "erikas plan"}, workspace=place, after=(first.id,))
        for place in places
    ]
    assert {(await working.get(each)).state for each in waiting} == {S.PENDING}
    done = await purged(working, app=APP)
    assert (done["state"], done["removed"]["tasks"]) == ("done", len(places))
    await nothing_is_left(working)
    assert (await working.get(first)).state is S.RUNNING
    await working.tasks.cancel(working.who, first.id)
    await working.ended(first)


@pytest.mark.slow
async def test_who_waited_for_one_that_failed_does_not_begin_because_it_is_forgotten(working):
    box = await create(working, owner=OWNER)
    task = await working.begin({"say": "x"}, {"await": 1}, workspace=Workspace(sandbox=box["id"]))
    await working.until(task, lambda now: now.state is S.RUNNING)
    later = await working.begin({"say": "never"}, after=(task.id,))
    done = await purged(working, owner=OWNER, force=True)
    assert done["state"] == "done"
    assert (await working.ended(later)).state is S.FAILED
    assert await working.said(later) == []


async def test_evidence_is_kept_for_as_long_as_the_record_of_its_sandbox(working):
    box = await create(working)
    admin, housekeeping = working.plane.admin, working.plane.rounds.housekeeping
    aside = await admin.call("PUT", f"/v1/quarantine/{box['id']}", {"why": "odd"})
    assert aside.status == 200, aside.body
    deleted = await admin.delete(f"/v1/sandboxes/{box['id']}?force=true")
    assert deleted.status == 200, deleted.body

    async def kept():
        await housekeeping.look()
        return await working.plane.services.store.read(lambda tx: tx.values.all("quarantine."))

    assert len(await kept()) == 1
    housekeeping.retention = replace(housekeeping.retention, deleted_sandboxes_s=-1.0)
    assert not await kept()
