"""Agents that are only to look, or to judge: what they change is put back, whoever they are."""

import pytest

from paddock.domain.agent import WorkMode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskState as S
from paddock.domain.task_wish import Check, GivenFile
from tests.tasks.conftest import command

GIVEN = (GivenFile("kept.txt", b"as it was\n"),)


@pytest.mark.proves("T22")
async def test_who_only_looks_changes_nothing(working):
    task = await working.done(
        {"run": "cat kept.txt"}, {"say": "I have seen it."}, files=GIVEN, mode=WorkMode.EXPLORE
    )
    assert (task.state, task.result.message) == (S.COMPLETED, "I have seen it."), task.detail
    assert (task.result.files, task.result.reverted) == ((), ())
    told = await working.done({"echo": True}, mode=WorkMode.EXPLORE)
    assert "Only look: change no file." in told.result.message


@pytest.mark.proves("T22")
async def test_who_was_only_to_look_and_changed_something_fails_and_it_is_put_back(working):
    task = await working.done(
        {"write": ["kept.txt", "changed\n"]},
        {"write": ["new/one.txt", "x\n"]},
        {"say": "oops"},
        files=GIVEN,
        mode=WorkMode.EXPLORE,
        checks=(Check("never", ("true",)),),
    )
    assert (task.state, task.reason) == (S.FAILED, Reason.CHANGED_FILES)
    assert "kept.txt, new/one.txt" in task.detail
    assert task.result.reverted == ("kept.txt", "new/one.txt")
    assert task.result.files == ()
    assert await working.read(task, "kept.txt") == "as it was\n"
    assert await working.read(task, "new/one.txt") == ""
    (event,) = await working.events(task, "task.reverted")
    assert event.data["files"] == ["kept.txt", "new/one.txt"]
    assert event.data["kept"]


@pytest.mark.proves("T22")
async def test_a_verdict_is_given_and_what_was_tried_is_put_back(working):
    task = await working.done(
        {"run": "git init -q . && git -c user.name=a -c user.email=a@b commit -qm x --allow-empty"},
        {"say": "here"},
        files=GIVEN,
    )
    judged = await working.done(
        {"run": "echo more >> kept.txt; git add -A"},
        {"run": "git -c user.name=a -c user.email=a@b commit -qm mine"},
        {"say": "It is good."},
        workspace=working.place(task),
        mode=WorkMode.VALIDATE,
        checks=(Check("same", ("grep", "-qx", "as it was", "kept.txt")),),
    )
    assert (judged.state, judged.result.message) == (S.COMPLETED, "It is good."), judged.detail
    assert set(judged.result.reverted) == {"kept.txt", "HEAD"}
    ran = await working.plane.services.commands.run(
        working.who,
        judged.sandbox_id,
        command("git", "-C", judged.directory, "log", "--format=%s"),
    )
    assert ran.stdout == b"x\n"


@pytest.mark.proves("T22")
async def test_what_a_look_left_behind_is_put_back_however_it_ended(working):
    task = await working.done(
        {"write": ["kept.txt", "changed\n"]}, {"fail": "no"}, files=GIVEN, mode=WorkMode.EXPLORE
    )
    assert (task.state, task.reason) == (S.FAILED, Reason.AGENT_ERROR)
    assert task.result.reverted == ("kept.txt",)
    assert await working.read(task, "kept.txt") == "as it was\n"


@pytest.mark.proves("T22")
async def test_modes_are_shown_and_agents_say_which_they_keep_to(working):
    answer = await working.plane.admin.get("/v1/agents/claude_code")
    assert answer["keeps_to"] == ["explore", "validate"]
    assert (await working.plane.admin.get("/v1/agents/scripted"))["keeps_to"] == []
    wish = {"prompt": "Look.", "agent": "scripted", "template": "plain", "mode": "explore"}
    planned = await working.plane.admin.post("/v1/tasks/check", wish)
    assert "in the mode explore, which it is told; put back what it changes" in str(planned.body)
    refused = await working.plane.admin.post("/v1/tasks", {**wish, "mode": "wander"})
    assert refused.status == 400


async def test_attributes_of_git_hide_nothing_from_who_looks_at_what_was_changed(working):
    does = {"run": "echo '* working-tree-encoding=UTF-16LE' > .gitattributes; echo evil > evil.txt"}
    explored = await working.done(does, {"say": "looked"}, mode=WorkMode.EXPLORE)
    assert (explored.state, explored.reason) == (S.FAILED, Reason.CHANGED_FILES)
    assert set(explored.result.reverted) == {".gitattributes", "evil.txt"}
    assert await working.read(explored, "evil.txt") == ""
    made = await working.done(does, {"say": "made"})
    assert {each.path for each in made.result.files} == {".gitattributes", "evil.txt"}
    assert made.result.unseen == ""
    text, _ = await working.tasks.diff(working.who, made.id)
    assert b"+evil" in text
    await working.tasks.revert(working.who, made.id)
    assert await working.read(made, "evil.txt") == ""
