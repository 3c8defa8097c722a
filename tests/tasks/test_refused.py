"""What cannot be done is refused before a task is made; what waits or works says so."""

import pytest

from paddock.domain.task import TaskState as S
from paddock.domain.task_queue import TaskLimits, Waiting, why_waiting
from paddock.testing.agent import prompt_of
from tests.control_plane import disposable
from tests.tasks.conftest import SETTINGS, Working, operator

WAITS = {"run": "until [ -e go ]; do sleep 0.05; done"}
WISH = {"prompt": prompt_of({"say": "hello"}), "agent": "scripted", "template": "plain"}


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks/check"])
@pytest.mark.parametrize(
    ("wrong", "status", "said"),
    [
        ({"template": "nope"}, 404, "no template 'nope'"),
        ({"template": None, "snapshot": "nope"}, 404, "no snapshot nope"),
        ({"template": None, "sandbox": ""}, 400, "sandbox"),
        ({"template": None, "fork": ""}, 400, "fork"),
        ({"resources": {"memory_mib": 1 << 25}}, 400, "memory_mib of 33554432 was asked for"),
    ],
)
async def test_what_there_is_not_is_refused_before_a_task_is_made(
    working, path, wrong, status, said
):
    before = await working.plane.admin.get("/v1/tasks?limit=1")
    wish = {name: value for name, value in {**WISH, **wrong}.items() if value is not None}
    refused = await working.plane.admin.post(path, wish)
    assert (refused.status, said in str(refused.body)) == (status, True), refused.body
    assert (await working.plane.admin.get("/v1/tasks?limit=1"))["items"] == before["items"]


async def test_a_directory_that_a_sandbox_lacks_is_refused_and_one_of_a_new_sandbox_is_made(
    working,
):
    task = await working.done({"write": ["kept", "1"]}, {"say": "x"})
    wish = {"prompt": WISH["prompt"], "agent": "scripted", "sandbox": task.sandbox_id}
    refused = await working.plane.admin.post("/v1/tasks", {**wish, "directory": "typo"})
    assert (refused.status, "no directory typo" in str(refused.body)) == (404, True), refused.body
    file = f"{task.directory}/kept"
    refused = await working.plane.admin.post("/v1/tasks", {**wish, "directory": file})
    assert (refused.status, "no directory" in str(refused.body)) == (404, True), refused.body
    planned = await working.plane.admin.post("/v1/tasks/check", {**wish, "directory": "workspace"})
    assert planned.status == 200, planned.body
    planned = await working.plane.admin.post("/v1/tasks/check", {**WISH, "directory": "new"})
    assert planned.status == 200, planned.body


async def test_the_only_agent_that_is_ready_needs_no_name(working):
    wish = {name: value for name, value in WISH.items() if name != "agent"}
    planned = await working.plane.admin.post("/v1/tasks/check", wish)
    assert planned["agent"] == "scripted", planned.body
    both = {**wish, "options": {"command": ["cat"]}}
    refused = await working.plane.admin.post("/v1/tasks/check", both)
    assert refused.status == 400, refused.body
    assert "no agent was given" in refused.error["message"]
    assert "`paddock agents`" in refused.error["remediation"]


async def test_a_task_that_is_over_can_be_retried_with_all_that_it_was_given(working):
    begun = await working.begin(WAITS, {"fail": "no"}, env={"A": "b"})
    refused = await working.plane.admin.post(f"/v1/tasks/{begun.id}/retry")
    assert (refused.status, "only a task that is over" in str(refused.body)) == (409, True)
    await working.plane.admin.post(f"/v1/tasks/{begun.id}/cancel")
    await working.ended(begun)
    again = await working.plane.admin.post(f"/v1/tasks/{begun.id}/retry")
    assert again.status == 201, again.body
    assert (again["id"] != begun.id, again["env_names"]) == (True, ["A"])
    assert (again["prompt"], again["agent"]) == (begun.wish.prompt, begun.agent)
    await working.plane.admin.post(f"/v1/tasks/{again['id']}/cancel")


async def test_a_sandbox_is_not_stopped_while_a_task_is_at_work_in_it(working):
    begun = await working.begin(WAITS, {"say": "done"})
    task = await working.until(begun, lambda now: now.state is S.RUNNING)
    refused = await working.plane.admin.post(f"/v1/sandboxes/{task.sandbox_id}/stop")
    assert (refused.status, refused.error["code"]) == (409, "conflict"), refused.body
    assert f"task {task.id} runs in sandbox" in refused.error["message"]
    assert "paddock task cancel" in refused.error["remediation"]
    await working.plane.admin.post(f"/v1/tasks/{task.id}/cancel")
    await working.ended(task)
    stopped = await working.plane.admin.post(f"/v1/sandboxes/{task.sandbox_id}/stop")
    assert stopped.status == 200, stopped.body


async def test_a_pending_task_says_why():
    async with disposable(settings=SETTINGS) as plane:
        working = Working(plane, await operator(plane))
        first = await working.begin({"say": "x"})
        assert (await working.get(first)).detail == ""
        second = await working.begin({"say": "x"}, after=(first.id,))
        assert (await working.get(second)).detail == f"waits for {first.id} to be completed"
        await working.tasks.pause(working.who, first.id)
        listed = await plane.admin.get("/v1/tasks")
        details = [each["detail"] for each in listed["items"]]
        assert details[-1].startswith("paused by ")


@pytest.mark.parametrize(
    ("active", "busy", "why"),
    [
        ({}, (), ""),
        ({("t", "p"): 1}, (), "the team runs 1 tasks; its limit is 1"),
        ({("u", "p"): 2}, (), "2 tasks run on p; its limit is 2"),
        ({("u", "q"): 9}, ("box",), "another task runs in sandbox box; a sandbox runs one task"),
    ],
)
def test_what_keeps_a_task_from_its_turn_is_said(active, busy, why):
    said = why_waiting(Waiting("x", "t", "p", "box"), active, busy, TaskLimits(1, 2))
    assert said.startswith(why)
    assert bool(said) == bool(why)
