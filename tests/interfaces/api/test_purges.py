"""Forgetting an owner or an app: everything of theirs goes, the chain of the audit log holds."""

import asyncio
import json
import time
from dataclasses import replace

import pytest

from paddock.adapters.store.schema import metadata
from paddock.domain.audit import AuditEntry, first_break
from paddock.domain.event import Event
from paddock.domain.ids import new_id
from paddock.domain.purge import Whose
from paddock.domain.task import TASK_PREFIX, TaskRecord, TaskState
from paddock.domain.task_wish import TaskWish
from paddock.ports.store import ANY_TEAM
from paddock.services.purges import _put
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable, running
from tests.databases import new_database

OWNER = "erika@mustermann.example"
APP = "erikas-shop"


@pytest.fixture(scope="module")
async def plane():
    async with disposable(provider=SimulatedProvider) as made:
        yield made


async def create(plane, **wish):
    made = await plane.admin.post("/v1/sandboxes", {"template": "plain", **wish})
    assert made.status == 201, made.body
    return made.body


async def ended(plane, purge, who=None):
    async with asyncio.timeout(30):
        while True:
            found = await (who or plane.admin).get(f"/v1/purges/{purge['id']}")
            if found["state"] != "running":
                return found
            await asyncio.sleep(0.05)


async def everything(plane):
    """All that is stored, as text."""

    def look(tx):
        found = [tx._connection.execute(table.select()) for table in metadata.sorted_tables]
        return json.dumps([[list(map(str, row)) for row in rows] for rows in found])

    return await plane.services.store.read(look)


@pytest.mark.proves("U12")
async def test_nothing_of_an_owner_is_left_and_nothing_of_others_is_touched():
    async with disposable(provider=SimulatedProvider) as plane:
        admin = plane.admin
        headers = {"idempotency-key": "erikas-key"}
        box = (
            await admin.post(
                "/v1/sandboxes",
                {"template": "plain", "name": "erikas-box", "owner": OWNER, "env": {"E": "erikas"}},
                headers=headers,
            )
        ).body
        fork = (await admin.post(f"/v1/sandboxes/{box['id']}/fork", {"name": "erikas-fork"})).body
        assert fork["owner"] == OWNER
        snapshot = await admin.post(f"/v1/sandboxes/{box['id']}/snapshots", {"name": "erikas-copy"})
        assert snapshot.status == 201, snapshot.body
        event = {"source": "a", "seq": 1, "kind": "custom.step", "data": {"who": "erikas words"}}
        await admin.post(f"/v1/sandboxes/{box['id']}/events", [event])
        gone = await create(plane, name="erikas-gone", owner=OWNER)
        await admin.delete(f"/v1/sandboxes/{gone['id']}")
        other = await create(plane, name="others", owner="somebody-else")
        listed = await admin.get(f"/v1/sandboxes?owner={OWNER}")
        assert {s["id"] for s in listed["items"]} == {box["id"], fork["id"]}

        plan = await admin.post("/v1/purge", {"owner": OWNER, "dry_run": True})
        assert (plan.status, plan["state"], plan["id"]) == (200, "planned", None)
        assert plan["removed"] == {"sandboxes": 3, "snapshots": 1, "tasks": 0}
        assert (await admin.get(f"/v1/sandboxes/{box['id']}"))["state"] == "running"

        begun = await admin.post("/v1/purge", {"owner": OWNER})
        assert begun.status == 202
        done = await ended(plane, begun)
        assert (done["state"], done["owner"], done["digest"]) == ("done", None, plan["digest"])
        assert done["removed"]["sandboxes"] == 2
        assert done["removed"]["snapshots"] == 1
        assert any("chain still holds" in each for each in done["kept"])

        left = await everything(plane)
        assert "erika" not in left.lower()
        for path in (f"/v1/sandboxes/{box['id']}", f"/v1/snapshots/{snapshot['id']}"):
            assert (await admin.get(path)).status == 404
        told = await admin.get(f"/v1/events?subject={box['id']}&limit=500")
        assert {"sandbox.creating", "sandbox.deleted"} <= {e["kind"] for e in told["items"]}
        assert all(e["data"]["forgotten"] for e in told["items"])
        kept = await admin.get(f"/v1/sandboxes/{other['id']}")
        assert (kept["state"], kept["owner"]) == ("running", "somebody-else")
        again = await admin.post(
            "/v1/sandboxes", {"template": "plain", "owner": "new"}, headers=headers
        )
        assert again.status == 201


@pytest.mark.proves("U5", "U12")
async def test_the_chain_holds_and_shows_what_was_taken_out(plane):
    box = await create(plane, owner="short-lived")
    await ended(plane, await plane.admin.post("/v1/purge", {"owner": "short-lived"}))
    chain = await plane.services.store.read(lambda tx: tx.audit.after(0, 10_000))
    assert first_break(chain) is None
    about = [entry for entry in chain if entry.subject == box["id"]]
    assert about
    assert all(entry.is_redacted and not entry.detail for entry in about)
    acts = [entry.action for entry in chain if not entry.is_redacted]
    assert acts[-1] == "owner.forgotten"
    assert "owner.purge" in acts


@pytest.mark.proves("L6")
async def test_work_that_is_nowhere_else_holds_all_of_it_back_until_forced(plane):
    boxes = [await create(plane, owner="worker") for _ in range(2)]
    holds = plane.services.sandboxes.holds

    async def hold(sandbox):
        return "3 files" if sandbox.id == boxes[0]["id"] else ""

    holds.append(hold)
    try:
        plan = await plane.admin.post("/v1/purge", {"owner": "worker", "dry_run": True})
        assert any("3 files" in each for each in plan["kept"])
        refused = await plane.admin.post("/v1/purge", {"owner": "worker"})
        assert (refused.status, refused.error["code"]) == (409, "conflict")
        for box in boxes:
            assert (await plane.admin.get(f"/v1/sandboxes/{box['id']}"))["state"] == "running"
        forced = await plane.admin.post("/v1/purge", {"owner": "worker", "force": True})
        assert (await ended(plane, forced))["state"] == "done"
    finally:
        holds.remove(hold)


async def told(plane, box):
    return (await plane.admin.get(f"/v1/events?subject={box['id']}&limit=500"))["items"]


@pytest.mark.proves("L6")
async def test_what_a_purge_has_to_keep_keeps_its_events(plane):
    kept, gone = [await create(plane, owner="late-worker") for _ in range(2)]
    copy = await plane.admin.post(f"/v1/sandboxes/{kept['id']}/snapshots", {"name": "late-copy"})
    before, looks = await told(plane, kept), []

    async def hold(sandbox):
        """Work that is there only when it has begun."""
        looks.append(sandbox.id)
        return "3 files" if looks.count(kept["id"]) > 1 and sandbox.id == kept["id"] else ""

    plane.services.sandboxes.holds.append(hold)
    try:
        begun = await plane.admin.post("/v1/purge", {"owner": "late-worker"})
        assert begun.status == 202, begun.body
        done = await ended(plane, begun)
        assert done["state"] == "blocked"
        assert [each for each in done["kept"] if kept["id"] in each and "3 files" in each]
        assert await told(plane, kept) == before
        assert all(e["data"].get("forgotten") for e in await told(plane, gone))
        assert all(e["data"].get("forgotten") for e in await told(plane, copy))
    finally:
        plane.services.sandboxes.holds.remove(hold)
    again = await plane.admin.post("/v1/purge", {"owner": "late-worker", "force": True})
    assert (await ended(plane, again))["state"] == "done"
    assert all(e["data"].get("forgotten") for e in await told(plane, kept))


@pytest.mark.proves("L5")
async def test_what_was_one_owners_comes_back_to_nobody_else(plane):
    mine = await create(plane, owner="mine")
    theirs = await create(plane, owner="theirs")
    copy = await plane.admin.post(f"/v1/sandboxes/{mine['id']}/snapshots", {"name": "my-work"})
    await plane.admin.delete(f"/v1/sandboxes/{mine['id']}")
    wrong = await plane.admin.post("/v1/sandboxes", {"snapshot": "my-work", "owner": "theirs"})
    assert wrong.status == 404
    assert "mine" not in wrong.error["message"]
    into = await plane.admin.post(f"/v1/sandboxes/{theirs['id']}/restore", {"snapshot": copy["id"]})
    assert into.status == 404
    for wish in ({"owner": "mine"}, {}):
        back = await plane.admin.post("/v1/sandboxes", {"snapshot": "my-work", **wish})
        assert (back.status, back["owner"]) == (201, "mine")


@pytest.mark.proves("U12")
async def test_only_admins_purge_and_only_in_their_team(plane):
    box = await create(plane, owner="shared-name")
    member = await plane.member()
    assert (await member.post("/v1/purge", {"owner": "shared-name"})).status == 403
    stranger = await plane.team("purgers")
    done = await stranger.post("/v1/purge", {"owner": "shared-name"})
    assert done.status == 202
    assert (await plane.admin.get(f"/v1/sandboxes/{box['id']}"))["state"] == "running"
    both = {"owner": "a", "app": "b"}
    for wrong in ({}, {"owner": ""}, {"owner": "a\nb"}, {"owner": "x" * 201}, {"app": "A b"}, both):
        assert (await plane.admin.post("/v1/purge", wrong)).status == 400


@pytest.mark.proves("U12")
async def test_nothing_of_an_app_is_left_and_nothing_of_others_is_touched():
    async with disposable(provider=SimulatedProvider) as plane:
        admin = plane.admin
        box = await create(plane, name="in-erikas-shop", app=APP, env={"E": "erikas"})
        gone = await create(plane, app=APP)
        copies = [
            await admin.post(f"/v1/sandboxes/{each['id']}/snapshots", {"name": f"erikas-{n}"})
            for n, each in enumerate((box, gone))
        ]
        await admin.delete(f"/v1/sandboxes/{gone['id']}")
        # Its record is gone as after the time that deleted ones are kept; its snapshot is not.
        await plane.services.store.write(lambda tx: tx.sandboxes.forget(gone["id"]))
        event = {"source": "a", "seq": 1, "kind": "custom.step", "data": {"who": "erikas words"}}
        await admin.post(f"/v1/sandboxes/{box['id']}/events", [event])
        for app in (APP, "other-shop", ""):
            put = await admin.call("PUT", f"/v1/secrets/SHARED?app={app}", {"value": f"for {app}"})
            assert put.status == 200, put.body
        await admin.call("PUT", f"/v1/secrets/ERIKAS_OLD?app={APP}", {"value": "x"})
        await admin.delete(f"/v1/secrets/ERIKAS_OLD?app={APP}")
        other = await create(plane, name="other", app="other-shop", owner=APP)
        told = (await admin.get(f"/v1/events?app={APP}&kind=snapshot.created"))["items"]
        assert [e["subject"] for e in told] == [copy["id"] for copy in copies]

        plan = await admin.post("/v1/purge", {"app": APP, "dry_run": True})
        assert (plan.status, plan["state"], plan["app"]) == (200, "planned", APP)
        assert plan["removed"] == {"sandboxes": 1, "snapshots": 2, "tasks": 0, "secrets": 1}
        named_alike = await admin.post("/v1/purge", {"owner": APP, "dry_run": True})
        assert named_alike["digest"] != plan["digest"]
        assert (await admin.get(f"/v1/sandboxes/{box['id']}"))["state"] == "running"

        begun = await admin.post("/v1/purge", {"app": APP})
        assert begun.status == 202
        done = await ended(plane, begun)
        assert (done["state"], done["app"], done["digest"]) == ("done", None, plan["digest"])
        assert {**done["removed"], **plan["removed"]} == done["removed"]

        kept = await admin.get(f"/v1/sandboxes/{other['id']}")
        assert (kept["state"], kept["app"]) == ("running", "other-shop")
        for path in (f"/v1/sandboxes/{box['id']}", *(f"/v1/snapshots/{c['id']}" for c in copies)):
            assert (await admin.get(path)).status == 404
        assert (await admin.get(f"/v1/secrets/SHARED?app={APP}")).status == 404
        for app in ("other-shop", ""):
            assert (await admin.get(f"/v1/secrets/SHARED?app={app}")).status == 200
        told = await admin.get("/v1/events?subject=SHARED")
        assert [e["data"].get("app") for e in told["items"]] == [None, "other-shop", "", None]
        chain = await plane.services.store.read(lambda tx: tx.audit.after(0, 10_000))
        assert first_break(chain) is None
        about = [entry for entry in chain if entry.subject == "SHARED"]
        assert [entry.is_redacted for entry in about] == [True, False, False, True]
        acts = [entry.action for entry in chain]
        assert (acts.count("app.purge"), acts[-1]) == (1, "app.forgotten")
        await admin.delete(f"/v1/sandboxes/{other['id']}")
        await ended(plane, await admin.post("/v1/purge", {"owner": APP}))
        left = (await everything(plane)).lower().replace("erikas_old", "")
        assert "erika" not in left


@pytest.mark.proves("L6")
async def test_work_that_is_nowhere_else_holds_an_app_back_with_its_secrets(plane):
    box = await create(plane, app="busy")
    await plane.admin.call("PUT", "/v1/secrets/KEY?app=busy", {"value": "x"})

    async def hold(sandbox):
        return "3 files" if sandbox.id == box["id"] else ""

    plane.services.sandboxes.holds.append(hold)
    try:
        refused = await plane.admin.post("/v1/purge", {"app": "busy"})
        assert (refused.status, refused.error["code"]) == (409, "conflict")
        assert (await plane.admin.get("/v1/secrets/KEY?app=busy")).status == 200
        forced = await plane.admin.post("/v1/purge", {"app": "busy", "force": True})
        assert (await ended(plane, forced))["state"] == "done"
    finally:
        plane.services.sandboxes.holds.remove(hold)
    assert (await plane.admin.get("/v1/secrets/KEY?app=busy")).status == 404


@pytest.mark.proves("U12")
async def test_an_app_of_that_name_in_another_team_is_another_app(plane):
    box = await create(plane, app="namesake")
    await plane.admin.call("PUT", "/v1/secrets/KEY?app=namesake", {"value": "x"})
    stranger = await plane.team("namesakes")
    done = await ended(plane, await stranger.post("/v1/purge", {"app": "namesake"}), stranger)
    assert done["removed"]["sandboxes"] == done["removed"]["secrets"] == 0
    assert (await plane.admin.get(f"/v1/sandboxes/{box['id']}"))["state"] == "running"
    assert (await plane.admin.get("/v1/secrets/KEY?app=namesake")).status == 200


CUT_OFF = {
    "owner": (1, 2, 3, 4, 5, 6, 8, 12, 14, 16),
    "app": (1, 3, 5, 7, 8, 9, 11, 14, 18, 19, 21, 23),
}
"""After how many writes."""
CUT_OFF_ALWAYS = {("owner", 1), ("owner", 5), ("owner", 12), ("app", 3), ("app", 9), ("app", 18)}
"""The others are cut off in soak runs."""


def add_task(tx, box):
    """One that is over, with what the audit log says of it."""
    wish, task_id = TaskWish("erikas wish", "agent"), new_id(TASK_PREFIX)
    team_id = tx.sandboxes.get(ANY_TEAM, box["id"]).team_id
    task = TaskRecord(task_id, team_id, "erikas-task", wish, created_at=0.0, changed_at=0.0)
    tx.tasks.add(replace(task, state=TaskState.COMPLETED, sandbox_id=box["id"]))
    detail = {"name": "erikas-task"}
    tx.audit.append([AuditEntry(team_id, "x", "task.create", task_id, 0.0, detail)])
    tx.events.append([Event(team_id, "task.pending", task_id, 0.0, detail)])


@pytest.mark.proves("U12")
@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        pytest.param(kind, n, marks=() if (kind, n) in CUT_OFF_ALWAYS else pytest.mark.soak)
        for kind, steps in CUT_OFF.items()
        for n in steps
    ],
)
async def test_a_purge_that_was_cut_off_goes_on_after_the_next_start(tmp_path, kind, steps):
    """Cut off after so many writes, as a crash would."""
    whose = {"owner": OWNER} if kind == "owner" else {"app": APP}
    async with running(tmp_path, SimulatedProvider) as plane:
        for n in range(2):
            box = await create(plane, name=f"erikas-{n}", **whose)
            await plane.admin.post(f"/v1/sandboxes/{box['id']}/snapshots", {"name": f"erikas-{n}"})
            await plane.services.store.write(lambda tx, box=box: add_task(tx, box))
            if app := whose.get("app"):
                await plane.admin.call("PUT", f"/v1/secrets/KEY_{n}?app={app}", {"value": "x"})
        store, purges = plane.services.store, plane.services.purges
        written, cut_off = store.write, asyncio.Event()

        async def breaking(work):
            nonlocal steps
            steps -= 1
            if steps < 0:
                cut_off.set()
                await asyncio.Event().wait()
            return await written(work)

        begun = await plane.admin.post("/v1/purge", {"owner": "nobody-yet"})
        await ended(plane, begun)
        who = plane.services.anyone or await _admin(plane)
        purge = await purges._new(who, Whose(**whose), force=False)
        await purges._put(purge)
        store.write = breaking
        task = asyncio.create_task(purges._pursue(purge))
        waiting = asyncio.create_task(cut_off.wait())
        await asyncio.wait({task, waiting}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        store.write = written
    async with running(tmp_path, SimulatedProvider) as plane:
        done = await ended(plane, {"id": purge.id})
        assert done["state"] == "done"
        assert "erika" not in (await everything(plane)).lower()
        found = await plane.services.store.read(lambda tx: tx.audit.after(0, 10_000))
        assert first_break(found) is None
        assert not [one async for one in plane.services.providers.get("").find({})]
        assert (
            await plane.services.store.read(lambda tx: tx.sandboxes.get(ANY_TEAM, box["id"]))
            is None
        )


@pytest.mark.slow
@pytest.mark.proves("U12")
async def test_another_process_goes_on_with_what_one_died_at(postgres):
    """Two others were on the same database: one is silent now, one is not."""
    async with (
        new_database(postgres) as database,
        disposable(provider=SimulatedProvider, database=database) as one,
    ):
        store, purges = one.services.store, one.services.purges
        who = await _admin(one)
        dead, busy = [
            await purges._new(who, Whose(owner=owner), force=False) for owner in ("dead", "busy")
        ]
        alive = {"by": "prc_another", "until": time.time() + 60}
        silent = {"by": "prc_another", "until": time.time() - 1}

        def interrupted(tx):
            for purge, lease in ((dead, silent), (busy, alive)):
                tx.values.put(f"lease.{purge.id}", lease)
                _put(tx, purge)

        await store.write(interrupted)
        assert (await ended(one, {"id": dead.id}))["state"] == "done"
        for _ in range(20):
            still = await one.admin.get(f"/v1/purges/{busy.id}")
            assert still["state"] == "running", "its process lives"
            await asyncio.sleep(0.05)
        assert not purges._underway
        left = await store.read(lambda tx: tx.values.all("lease."))
        assert set(left) == {f"lease.{busy.id}"}


async def test_the_next_process_alone_waits_for_nobody(postgres, tmp_path):
    async with new_database(postgres) as database:
        async with running(tmp_path, SimulatedProvider, database=database) as plane:
            purge = await plane.services.purges._new(
                await _admin(plane), Whose(owner="dead"), force=False
            )
            alive = {"by": "prc_another", "until": time.time() + 60}
            await plane.services.store.write(
                lambda tx: (tx.values.put(f"lease.{purge.id}", alive), _put(tx, purge))
            )
        async with running(tmp_path, SimulatedProvider, database=database) as plane:
            assert (await ended(plane, {"id": purge.id}))["state"] == "done"


async def _admin(plane):
    return await plane.services.access.authenticate(plane.admin.token)
