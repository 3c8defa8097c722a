"""What people allow for a task is over with it, however that ends."""

import asyncio
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddock.domain.egress import EgressWish, NetworkMode, OnBlock
from paddock.domain.task_wish import Workspace
from tests.control_plane import remove_all, running
from tests.interfaces.api.test_approvals import Asked, Door
from tests.interfaces.api.test_egress import Lists, texts
from tests.tasks.conftest import SETTINGS, Working, at_work, command, operator

pytestmark = pytest.mark.timeout(120)
ASKS = EgressWish(NetworkMode.ALLOWLIST, "", ("known.example",), OnBlock.ASK)
WAITS = {"run": "until [ -e go ]; do sleep 0.05; done"}
RULES = {"rules": [{"name": "echoes wait", "verdict": "ask", "command": "echo **"}]}


class Granting(Asked):
    """Somebody who answers what tasks ask for."""

    def __init__(self, working: Working) -> None:
        super().__init__(working.plane, Door())
        self.working = working

    async def begin(self, **workspace):
        workspace = workspace or {"template": "plain", "egress": ASKS}
        task = await self.working.begin(WAITS, {"end": "done"}, workspace=Workspace(**workspace))
        task = await self.working.until(task, lambda now: now.state == "running")
        self.id = task.sandbox_id
        return task

    async def go(self, task) -> None:
        run = self.plane.services.commands.run
        await run(self.working.who, task.sandbox_id, command("touch", f"{task.directory}/go"))

    async def granted(self, host: str = "a.example") -> dict:
        answer = await self.answer(await self.ask(host), "allowed_task")
        assert answer.status == 200, answer.body
        return answer


@asynccontextmanager
async def at(place: Path):
    async with running(place, Lists, settings=SETTINGS) as plane, at_work(plane):
        yield Granting(Working(plane, await operator(plane)))


async def other(granting, task) -> str:
    """A directory beside that of the task, where nothing lies that it waits for."""
    made = f"{task.directory}/2"
    run = granting.plane.services.commands.run
    await run(granting.working.who, task.sandbox_id, command("mkdir", made))
    return made


@pytest.fixture
def place():
    made = Path(tempfile.mkdtemp(prefix="pd-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
async def granting(place):
    async with at(place) as made:
        yield made
        await remove_all(made.plane)


@pytest.mark.proves("P16")
@pytest.mark.parametrize("way", ["completed", "cancelled", "failed"])
async def test_a_host_that_was_allowed_for_a_task_is_closed_when_it_is_over(granting, way: str):
    task = await granting.begin()
    answer = await granting.granted()
    assert (answer["rule"], answer["task_id"]) == ("a.example:443", task.id)
    assert texts(granting.plane) == ["known.example", "a.example:443"]
    standing = await granting.admin.get(f"/v1/sandboxes/{granting.id}/egress")
    assert standing["rules"][-1] == {"rule": "a.example:443", "source": f"task {task.id}"}
    assert standing["own"]["rules"] == ["known.example"]
    if way == "cancelled":
        await granting.admin.post(f"/v1/tasks/{task.id}/cancel")
    elif way == "failed":
        await granting.admin.delete(f"/v1/sandboxes/{granting.id}?force=true")
    else:
        await granting.go(task)
    assert (await granting.working.ended(task)).state == way
    await granting.asks.look()
    if way != "failed":
        assert texts(granting.plane) == ["known.example"]
        again = await granting.ask()
        assert (again["id"] != answer["id"], again["task_id"]) == (True, None)
    entries = [e async for e in granting.admin.lines("GET", "/v1/audit/export")]
    changed = [e["detail"] for e in entries if e["action"] == "egress.changed"]
    assert [each["rules"] for each in changed] == [["a.example:443"], []]
    assert {each["task"] for each in changed} == {task.id}
    kept = await granting.plane.services.store.read(lambda tx: tx.values.all("egress-granted."))
    assert not kept


async def test_a_host_that_its_agent_waits_for_is_told_of_with_the_task(granting):
    task = await granting.begin()
    asked = await granting.ask("a.example")
    (told,) = await granting.working.events(task, "task.approval")
    assert (told.data["title"], told.data["why"]) == ("a.example:443", "no rule allows it")
    assert (told.data["approval"], told.data["state"]) == (asked["id"], "pending")
    await granting.answer(asked, "denied")
    (_, answered) = await granting.working.events(task, "task.approval")
    assert answered.data["state"] == "denied"
    await granting.go(task)
    await granting.working.ended(task)


async def test_the_next_task_in_a_sandbox_asks_anew(granting):
    first = await granting.begin()
    await granting.granted("a.example")
    open_question = await granting.ask("b.example")
    await granting.go(first)
    await granting.working.ended(first)
    late = await granting.answer(open_question, "allowed_task")
    assert (late.status, late.error["code"]) == (409, "conflict"), late.body
    assert "is over" in late.error["message"]
    second = await granting.begin(sandbox=first.sandbox_id, directory=await other(granting, first))
    assert texts(granting.plane) == ["known.example", "a.example:443"], "nobody has looked"
    await granting.asks.look()
    assert texts(granting.plane) == ["known.example"]
    again = await granting.ask("b.example")
    assert (again["id"], again["task_id"]) == (open_question["id"], second.id)
    assert (await granting.answer(again, "allowed_task")).status == 200
    assert texts(granting.plane) == ["known.example", "b.example:443"]
    await granting.go(second)
    await granting.working.ended(second)


@pytest.mark.proves("P16")
async def test_a_task_that_ends_while_no_server_runs_leaves_nothing_open(place):
    async with at(place) as granting:
        task = await granting.begin()
        await granting.granted()
        await granting.admin.post(f"/v1/tasks/{task.id}/cancel")
        await granting.working.ended(task)
        assert texts(granting.plane) == ["known.example", "a.example:443"], (
            "it dies before it looks"
        )
    async with at(place) as granting:
        granting.id = task.sandbox_id
        standing = await granting.admin.get(f"/v1/sandboxes/{granting.id}/egress")
        assert len(standing["rules"]) == 2, "it is as it was"
        await granting.asks.look()
        standing = await granting.admin.get(f"/v1/sandboxes/{granting.id}/egress")
        assert [each["rule"] for each in standing["rules"]] == ["known.example"]
        await remove_all(granting.plane)


@pytest.mark.proves("P16")
async def test_a_denial_outweighs_what_was_allowed_for_a_task_and_a_new_policy_ends_it(granting):
    task = await granting.begin()
    await granting.granted()
    path = f"/v1/sandboxes/{granting.id}/egress"
    await granting.admin.call("PUT", "/v1/templates/plain/egress", {"rules": ["!*.example"]})
    tried = await granting.admin.post(f"{path}/test", {"url": "https://a.example/"})
    assert (tried["allowed"], tried["rule"]) == (False, "!*.example")
    await granting.admin.delete("/v1/templates/plain/egress")
    more = await granting.admin.post(f"{path}/allow", {"rules": ["more.example"]})
    assert "a.example:443" in [each["rule"] for each in more["rules"]]
    own = {"preset": "", "rules": ["other.example"], "on_block": "ask"}
    put = await granting.admin.call("PUT", path, own)
    assert [each["rule"] for each in put["rules"]] == ["other.example"]
    await granting.go(task)
    await granting.working.ended(task)


async def test_a_new_policy_that_is_refused_ends_nothing_that_was_allowed_for_a_task(granting):
    task = await granting.begin()
    await granting.granted()
    path = f"/v1/sandboxes/{granting.id}/egress"
    await granting.admin.call("PUT", "/v1/templates/plain/egress", {"rules": ["t.example"]})
    own = {"preset": "", "rules": [f"h{n}.example" for n in range(500)], "on_block": "ask"}
    assert (await granting.admin.call("PUT", path, own)).status == 400
    standing = await granting.admin.get(path)
    assert [each["rule"] for each in standing["rules"]] == texts(granting.plane)
    assert "a.example:443" in texts(granting.plane)
    await granting.admin.delete("/v1/templates/plain/egress")
    await granting.go(task)
    await granting.working.ended(task)


@pytest.mark.proves("E8")
async def test_a_command_that_was_allowed_for_a_task_is_asked_about_after_it(granting):
    task = await granting.begin()
    agent = await granting.plane.member(role="member")
    path = f"/v1/sandboxes/{granting.id}"
    assert (await granting.admin.call("PUT", f"{path}/policy", RULES)).status == 200

    def start(word: str = "x") -> asyncio.Task:
        return asyncio.create_task(agent.post(f"{path}/exec", {"cmd": ["echo", word]}))

    async def asked() -> dict:
        async with asyncio.timeout(20):
            while not (found := await granting.pending()):
                await asyncio.sleep(0.05)
        return found[0]

    started = start()
    found = await asked()
    assert found["task_id"] == task.id
    assert (await granting.answer(found, "allowed_task")).status == 200
    assert (await started)["stdout"] == "x\n"
    assert (await start())["stdout"] == "x\n", "it is not asked again in this task"
    started = start("late")
    late = await asked()
    await granting.go(task)
    await granting.working.ended(task)
    refused = await granting.answer(late, "allowed_task")
    assert (refused.status, refused.error["code"]) == (409, "conflict"), refused.body
    await granting.answer(late, "denied")
    assert (await started).error["code"] == "approval_required"
    started = start()
    again = await asked()
    assert (again["id"] != found["id"], again["task_id"]) == (True, None)
    assert (await granting.answer(again, "allowed_task")).status == 200
    assert (await started)["stdout"] == "x\n"
    assert (await start())["stdout"] == "x\n", "without a task it is for the sandbox"
