"""Agents that are only to look, or to judge: what they change is put back, whoever they are."""

import pytest

from paddock.domain.agent import WorkMode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskState as S
from paddock.domain.task_review import Opinion
from paddock.domain.task_warnings import UNPROVEN
from paddock.domain.task_wish import Check, GivenFile
from tests.tasks.conftest import command

GOOD = 'It is good.\n{"verdict": "approve", "findings": []}'
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
        {"say": GOOD},
        workspace=working.place(task),
        mode=WorkMode.VALIDATE,
        checks=(Check("same", ("grep", "-qx", "as it was", "kept.txt")),),
    )
    assert (judged.state, judged.result.message) == (S.COMPLETED, GOOD), judged.detail
    assert [each.opinion for each in judged.result.reviews] == [Opinion.APPROVE]
    assert set(judged.result.reverted) == {"kept.txt", "HEAD"}
    ran = await working.plane.services.commands.run(
        working.who,
        judged.sandbox_id,
        command("git", "-C", judged.directory, "log", "--format=%s"),
    )
    assert ran.stdout == b"x\n"


async def test_who_validates_without_a_verdict_is_asked_once_more_and_then_fails(working):
    task = await working.done(
        {"say": "Looks fine."}, {"end": ""}, {"say": "As I said."}, mode=WorkMode.VALIDATE
    )
    assert (task.state, task.reason) == (S.FAILED, Reason.NOT_APPROVED)
    assert task.detail == "the agent gave no verdict that can be read, twice"
    assert [each.opinion for each in task.result.reviews] == [Opinion.UNKNOWN] * 2


async def test_a_verdict_may_come_late_or_by_report_and_a_bad_one_is_a_result_too(working):
    bad = '{"verdict": "revise", "findings": [{"severity": "major", "text": "it is slow"}]}'
    late = await working.done(
        {"say": "Looks slow."}, {"end": ""}, {"say": bad}, mode=WorkMode.VALIDATE
    )
    assert late.state is S.COMPLETED, late.detail
    assert late.result.reviews[-1].findings[0].text == "it is slow"
    report = {"desk": ["/verdict", {"name": "build", "passed": False, "detail": "no"}]}
    told = await working.done(report, {"say": "See there."}, mode=WorkMode.VALIDATE)
    assert told.state is S.COMPLETED, told.detail
    (review,) = told.result.reviews
    assert (review.opinion, review.findings[0].text) == (Opinion.REVISE, "build: no")


async def test_a_task_that_only_claims_success_is_completed_with_a_warning(working):
    claims = await working.done({"say": "I have fixed it."})
    assert (claims.state, claims.result.warnings) == (S.COMPLETED, (UNPROVEN,)), claims.detail
    shown = await working.plane.admin.get(f"/v1/tasks/{claims.id}")
    assert shown["result"]["warnings"] == [UNPROVEN]
    for proof in (
        {"steps": [{"run": "true"}]},
        {"steps": [{"write": ["a", "1"]}]},
        {"steps": [], "checks": (Check("there", ("true",)),)},
        {"steps": [], "mode": WorkMode.EXPLORE},
    ):
        steps = proof.pop("steps")
        task = await working.done(*steps, {"say": "done"}, **proof)
        assert (task.state, task.result.warnings) == (S.COMPLETED, ()), (proof, task.detail)


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
