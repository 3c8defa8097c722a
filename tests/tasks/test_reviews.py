"""A task that is planned, done and reviewed, until only nits are left."""

import json
from dataclasses import replace

import pytest

from paddock.domain.conversation import Stage
from paddock.domain.reason import Reason
from paddock.domain.task import TaskState as S
from paddock.domain.task_wish import Check, GivenFile, Review, Rounds, Workspace
from paddock.settings import AgentsConfig
from tests.control_plane import disposable
from tests.tasks.conftest import OWN, SETTINGS, Working, at_work, operator

OWNS = (OWN, "paddock.testing.agent:ScriptedReviewer")
REVIEW = Review("scripted_reviewer", min_lines=0)


@pytest.fixture(scope="module")
async def working(database):
    settings = replace(SETTINGS, agents=AgentsConfig(own=OWNS))
    async with disposable(database=database, settings=settings) as plane, at_work(plane):
        yield Working(plane, await operator(plane))


def verdict(opinion, **findings):
    found = [{"severity": name, "text": text} for name, text in findings.items()]
    return "I looked.\n" + json.dumps({"verdict": opinion, "findings": found})


def reviewed_by(*reviews, **more):
    return {"review": REVIEW, "env": {"SCRIPTED_REVIEW": json.dumps(list(reviews))}, **more}


@pytest.mark.proves("T19")
async def test_a_task_is_planned_done_reviewed_and_done_again(working):
    given = reviewed_by(
        [
            {"echo": True},
            {"run": "echo tried > scratch; echo more >> a"},
            {"say": verdict("revise", major="b is missing", nit="a is short")},
        ],
        [{"say": verdict("revise", nit="a is still short")}],
        checks=(Check("a", ("test", "-e", "a")),),
        rounds=Rounds(2),
    )
    given["review"] = replace(REVIEW, plan=True)
    task = await working.done(
        {"write": ["sneaked", "in"]},
        {"end": "First a, then b."},
        {"echo": True},
        {"write": ["a", "one\n"]},
        {"end": "I wrote a."},
        {"echo": True},
        {"write": ["b", "two\n"]},
        {"end": "And b."},
        **given,
    )
    assert task.state is S.COMPLETED, task.detail
    result = task.result
    assert (result.plan, result.message) == ("First a, then b.", "And b.")
    assert [each.path for each in result.files] == ["a", "b"]
    assert [(each.opinion, each.is_approved) for each in result.reviews] == [
        ("revise", False),
        ("revise", True),
    ]
    assert await working.read(task, "a") == "one\n"
    assert set(result.reverted) == {"sneaked", "scratch", "a"}
    by_plan, first_review, again = [each for each in await working.said(task) if "\n" in each][:3]
    assert by_plan.startswith("Do it now, by your plan.")
    assert "+one" in first_review
    assert "First a, then b." in first_review
    assert again.startswith("I looked.") or "b is missing" in again
    told = await working.events(task, "task.reviewed")
    assert [each.data["approved"] for each in told] == [False, True]
    assert len(await working.events(task, "task.planned")) == 1
    assert [each.number for each in task.rounds] == [1, 2]
    # Who goes on with it goes on with the one who did it.
    assert task.conversation.stage is Stage.REVIEW
    after = await working.done({"say": "more"}, follows=task.id, agent="", workspace=Workspace())
    assert after.conversation.session == task.conversation.own_session


@pytest.mark.proves("T19")
async def test_who_gives_no_verdict_is_asked_once_again(working):
    good = reviewed_by([{"end": "Looks fine to me."}, {"say": verdict("approve")}])
    task = await working.done({"write": ["a", "1"]}, {"say": "done"}, **good)
    assert (task.state, task.result.message) == (S.COMPLETED, "done"), task.detail
    assert [each.opinion for each in task.result.reviews] == ["unknown", "approve"]
    silent = reviewed_by([{"end": "Fine."}, {"end": "As I said."}, {"say": verdict("approve")}])
    task = await working.done({"write": ["a", "1"]}, {"say": "done"}, **silent)
    assert (task.state, task.reason) == (S.FAILED, Reason.NOT_APPROVED)
    assert [each.path for each in task.result.files] == ["a"]


@pytest.mark.proves("T19")
async def test_what_is_never_approved_fails_and_is_kept(working):
    never = reviewed_by([{"say": verdict("revise", major="no")}])
    task = await working.done(
        {"write": ["a", "1"]}, {"end": "done"}, {"write": ["b", "1"]}, {"say": "now"}, **never
    )
    assert (task.state, task.reason) == (S.FAILED, Reason.NOT_APPROVED)
    assert "no, after 2 reviews" in task.detail
    assert [each.path for each in task.result.files] == ["a", "b"]


@pytest.mark.proves("T19")
async def test_a_change_that_is_too_small_for_a_review_is_completed_with_a_warning(working):
    given = reviewed_by([{"say": verdict("revise", major="no")}], files=(GivenFile("a", b"1\n"),))
    given["review"] = replace(REVIEW, min_lines=3)
    task = await working.done({"write": ["a", "2\n"]}, {"say": "done"}, **given)
    assert (task.state, task.result.reviews) == (S.COMPLETED, ()), task.detail
    (warning,) = task.result.warnings
    assert warning == "it was not reviewed: fewer than 3 lines changed (review.min_lines)"


async def test_one_line_is_reviewed_unless_somebody_says_otherwise(working):
    given = reviewed_by([{"say": verdict("approve")}], files=(GivenFile("a", b"1\n"),))
    given["review"] = Review("scripted_reviewer")
    task = await working.done({"write": ["a", "2\n"]}, {"say": "done"}, **given)
    assert (task.state, len(task.result.reviews)) == (S.COMPLETED, 1), task.detail


async def test_who_undoes_a_change_instead_of_mending_it_is_reviewed_again(working):
    given = reviewed_by([{"say": verdict("revise", major="no")}])
    given["review"] = replace(REVIEW, min_lines=2)
    steps = ({"write": ["a", "1\n2\n"]}, {"end": "done"}, {"run": "rm a"}, {"say": "undone"})
    task = await working.done(*steps, **given)
    assert (task.state, task.reason) == (S.FAILED, Reason.NOT_APPROVED), task.detail
    assert len(task.result.reviews) == 2


async def test_a_review_is_checked_beforehand_and_shown(working):
    wish = {"prompt": "Do it.", "agent": "scripted", "template": "plain"}
    review = {"agent": "scripted_reviewer", "plan": True}
    planned = await working.plane.admin.post("/v1/tasks/check", {**wish, "review": review})
    said = "\n".join(planned.body["steps"])
    assert "have it make a plan first" in said
    assert "have scripted_reviewer review it in a session of its own" in said
    for wrong in ({"agent": "nobody"}, {"rounds": 11}, {"rounds": 0}, {"model": "m", **review}):
        refused = await working.plane.admin.post("/v1/tasks", {**wish, "review": wrong})
        assert 400 <= refused.status < 500, wrong
