"""One page for everything, and how one sandbox is."""

import asyncio
import time
from dataclasses import replace

import pytest

from paddock.domain.ids import new_id
from paddock.domain.sandbox import SandboxState
from paddock.domain.task import Lease, TaskRecord, TaskState
from paddock.domain.task_wish import TaskWish
from paddock.services.beats import Beat, note_beat
from paddock.services.reconciler import TAKEN_IN
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable
from tests.interfaces.api.test_task_cleaning import use
from tests.interfaces.api.test_tasks import ended, give
from tests.tasks.conftest import SETTINGS, at_work

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
async def plane():
    async with disposable(provider=SimulatedProvider, settings=SETTINGS) as made, at_work(made):
        yield made


async def looked(plane, who=None):
    answer = await (who or plane.admin).get("/v1/system/status")
    assert answer.status == 200, answer.body
    return answer.body


@pytest.mark.proves("H10")
async def test_one_page_shows_workers_tasks_strays_quarantine_cost_and_providers(plane):
    done = await ended(plane, await give(plane, {"say": "x"}))
    await use(plane, done, cost=0.5, at=time.time())
    works = await give(plane, {"say": "here"}, {"await": 1})
    async with asyncio.timeout(60):
        while (page := await looked(plane))["tasks_by_phase"] != {"agent": 1} or (
            page["servers"][0]["tasks"] != 1
        ):
            await asyncio.sleep(0.05)
    waits = await give(plane, {"say": "later"}, after=[works["id"]])
    page = await looked(plane)
    (server,) = page["servers"]
    assert server["alive"] is True
    assert server["since"] <= server["beat_at"] <= page["at"]
    states = page["tasks_by_state"]
    assert (states["completed"], states["running"], states["pending"]) == (1, 1, 1)
    assert page["tasks_by_phase"] == {"agent": 1}
    assert page["oldest_waiting"]["id"] == waits["id"]
    (spend,) = page["spend"]
    assert (spend["today_usd"], spend["month_usd"]) == (0.5, 0.5)
    (provider,) = page["providers"]
    assert provider["usable"] is True
    assert (page["strays"], page["quarantined"]) == ([], [])
    box = (await plane.admin.get(f"/v1/tasks/{works['id']}"))["sandbox_id"]
    aside = await plane.admin.call("PUT", f"/v1/quarantine/{box}", {"why": "to be seen"})
    assert aside.status == 200, aside.body
    assert [each["why"] for each in (await looked(plane))["quarantined"]] == ["to be seen"]
    assert (await plane.admin.delete(f"/v1/quarantine/{box}")).status == 200
    for task in (works, waits):
        await plane.admin.post(f"/v1/tasks/{task['id']}/cancel")


@pytest.mark.proves("H10")
async def test_what_nobody_looks_after_is_named():
    async with disposable(provider=SimulatedProvider, settings=SETTINGS) as plane:
        made = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
        ids = [f"{made['id']}{name}" for name in "ab"]
        wish = TaskWish("x", "scripted")

        def leave(tx):
            box = tx.sandboxes.get("", made["id"])
            task = TaskRecord(new_id("tsk"), box.team_id, "a", wish, 1.0, 1.0)
            tx.tasks.add(replace(task, state=TaskState.RUNNING, lease=Lease("prc_dead", 1, 1.0)))
            for name, state in (("a", SandboxState.DELETING), ("b", SandboxState.RUNNING)):
                detail = TAKEN_IN if name == "b" else ""
                more = {"state": state, "changed_at": 5.0, "detail": detail, "ref": ""}
                kept = replace(box, id=f"{box.id}{name}", name=f"stray-{name}", version=0, **more)
                tx.sandboxes.add(kept)
            for number in range(600):  # newer than those, and nothing is wrong with them
                more = {"name": f"box-{number}", "version": 0, "ref": ""}
                ids.append(new_id("sbx"))
                tx.sandboxes.add(replace(box, id=ids[-1], **more))
            now = plane.rounds.housekeeping._clock.wall()
            note_beat(tx, Beat("prc_dead", "elsewhere", 7, "0", 1.0, now - 60, 1, 64))
            return task.id

        task_id = await plane.services.store.write(leave)
        page = await looked(plane)
        kinds = {each["id"]: each["kind"] for each in page["strays"]}
        assert kinds == {ids[0]: "deleting", ids[1]: "taken_in", task_id: "unattended"}
        assert [(each["host"], each["alive"]) for each in page["servers"]] == [("elsewhere", False)]
        await plane.services.store.write(lambda tx: [tx.sandboxes.forget(each) for each in ids])


@pytest.mark.proves("U1")
async def test_a_team_sees_what_is_its_own(plane):
    viewer = await plane.member(role="viewer")
    assert (await viewer.get("/v1/system/status")).status == 200
    narrow = await plane.member(role="member", scopes=["sandboxes:read"])
    assert (await narrow.get("/v1/system/status")).status == 403


@pytest.mark.proves("H3")
async def test_a_sandbox_is_asked_how_it_is_and_one_that_sleeps_is_not_woken(plane):
    made = await plane.admin.post("/v1/sandboxes", {"template": "plain", "name": "asked"})
    assert made.status == 201, made.body
    here = "/v1/sandboxes/asked"
    active = (await plane.admin.get(here))["active_at"]
    found = await plane.admin.get(f"{here}/health")
    assert (found.status, found["state"], found["healthy"]) == (200, "running", True), found.body
    assert 0 < found["latency_s"] < 10
    assert (await plane.admin.get(here))["active_at"] == active
    for verb, state in (("pause", "paused"), ("resume", ""), ("stop", "stopped")):
        await plane.admin.post(f"{here}/{verb}")
        if state:
            found = await plane.admin.get(f"{here}/health")
            assert (found["state"], found["healthy"], found["latency_s"]) == (state, False, None)
            assert "not asked" in found["detail"]
            assert (await plane.admin.get(here))["state"] == state
    assert (await plane.admin.get("/v1/sandboxes/nobody/health")).status == 404
