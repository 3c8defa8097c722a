"""Questions about tasks in the inbox: asked once, answered once, in words."""

from dataclasses import replace

import pytest

from paddock.domain.errors import NotFound
from paddock.domain.ids import new_id
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.task_wish import TaskWish
from paddock.services.approvals import TaskQuestion
from tests.control_plane import disposable

pytestmark = pytest.mark.timeout(60)


class Asking:
    """A task in a sandbox, about which people are asked."""

    def __init__(self, plane, task: TaskRecord) -> None:
        self.plane, self.admin, self.task = plane, plane.admin, task
        self.approvals = plane.services.approvals
        self.store = plane.services.store

    async def ask(self, title: str = "Shall it go on?", **more):
        task = self.task
        question = TaskQuestion(
            task.id,
            task.sandbox_id,
            task.team_id,
            title=title,
            why="the budget is used up",
            detail={"used": 10},
            expires_s=600.0,
        )
        return await self.approvals.ask_task(replace(question, **more))

    async def answer(self, approval, answer: str, **body):
        path = f"/v1/approvals/{approval.id}/answer"
        return await self.admin.post(path, {"answer": answer, **body})

    async def change(self, **changes) -> None:
        def write(tx) -> None:
            tx.tasks.replace(replace(tx.tasks.get("", self.task.id), **changes))

        await self.store.write(write)


@pytest.fixture
async def asking():
    async with disposable() as plane:
        box = await plane.admin.post("/v1/sandboxes", {"name": "box", "template": "plain"})
        assert box.status == 201, box.body
        sandbox = await plane.services.store.read(lambda tx: tx.sandboxes.get("", box["id"]))
        task = TaskRecord(
            new_id("tsk"),
            sandbox.team_id,
            "a",
            TaskWish("do it", "command"),
            1.0,
            1.0,
            state=TaskState.WAITING,
            sandbox_id=sandbox.id,
        )
        await plane.services.store.write(lambda tx: tx.tasks.add(task))
        yield Asking(plane, task)


@pytest.mark.proves("M10")
async def test_the_same_question_is_asked_once_and_has_one_answer_for_good(asking):
    asked = await asking.ask()
    assert (await asking.ask()).id == asked.id
    other = await asking.ask("And this?")
    assert other.id != asked.id
    answer = await asking.answer(asked, "allowed_once", note="yes, but tests first")
    assert (answer.status, answer["kind"], answer["task_id"]) == (200, "question", asking.task.id)
    again = await asking.ask()
    assert (again.id, again.note, again.state) == (asked.id, "yes, but tests first", "allowed_once")
    assert again.detail == {}
    assert [each.id for each in await asking.approvals.of_task(asking.task.id)] == [
        other.id,
        asked.id,
    ]
    anew = await asking.ask(what="guardian-7")
    assert anew.id not in (asked.id, other.id)


@pytest.mark.proves("M10")
async def test_it_is_in_the_inbox_with_what_it_depends_on(asking):
    asked = await asking.ask()
    (found,) = (await asking.admin.get("/v1/approvals?state=pending&kind=question"))["items"]
    assert (found["id"], found["title"]) == (asked.id, "Shall it go on?")
    assert (found["detail"], found["asked_by"]) == ({"used": 10}, "paddock/guardian")


@pytest.mark.parametrize("more", [{"answer": "allowed_task"}, {"answer": "allowed_always"}])
async def test_nothing_can_be_allowed_for_longer(asking, more):
    asked = await asking.ask()
    level = {"level": "app"} if more["answer"] == "allowed_always" else {}
    refused = await asking.answer(asked, **more, **level)
    assert refused.status == 400, refused.body
    assert "is no answer to a question" in str(refused.body)
    assert (await asking.answer(asked, "denied")).status == 200


@pytest.mark.proves("M10")
async def test_it_waits_while_its_sandbox_is_stopped_and_ends_with_its_task(asking):
    asked = await asking.ask()
    assert (await asking.admin.post("/v1/sandboxes/box/stop", {})).status == 200
    await asking.approvals.expire()
    assert (await asking.ask()).is_pending
    await asking.change(state=TaskState.FAILED)
    assert await asking.approvals.expire() == 1
    (found,) = await asking.approvals.of_task(asking.task.id)
    assert (found.id, found.state, found.note) == (asked.id, "expired", "its task is over")


async def test_what_is_not_there_is_not_asked_about(asking):
    with pytest.raises(NotFound):
        await asking.ask(sandbox_id="sbx_nothing")
    with pytest.raises(NotFound):
        await asking.ask(team_id="tem_other")
    assert await asking.approvals.of_task("tsk_nothing") == []
