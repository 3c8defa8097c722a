"""What a reviewer's words amount to, and whose turn it is then."""

from dataclasses import replace

import pytest

from paddock.domain.agent import WorkMode
from paddock.domain.conversation import Conversation, Stage, begun
from paddock.domain.errors import InvalidRequest
from paddock.domain.reason import Reason
from paddock.domain.task_course import Step
from paddock.domain.task_review import (
    Finding,
    Opinion,
    Reviewed,
    Severity,
    after_review,
    agent_at,
    first_stage,
    mode_at,
    model_at,
    opening,
    planned_prompt,
    review_prompt,
    revise_prompt,
    verdict_of,
)
from paddock.domain.task_rounds import Left
from paddock.domain.task_wish import Check, Review, Rounds, TaskWish, checked

NIT, MINOR, MAJOR = (
    Finding(Severity.NIT, "a nit"),
    Finding(Severity.MINOR, "a minor"),
    Finding(Severity.MAJOR, "a major"),
)
WISH = TaskWish(
    "Do it.", "scripted", model="m", checks=(Check("tests", ("make",)),), review=Review("codex")
)


@pytest.mark.parametrize(
    ("words", "opinion", "findings"),
    [
        ('Fine.\n{"verdict": "approve", "findings": []}', Opinion.APPROVE, ()),
        (
            'No.\n{"verdict":"revise","findings":[{"severity":"minor","text":"a minor"}]}',
            Opinion.REVISE,
            (MINOR,),
        ),
        ('```json\n{"verdict": "Approve"}\n```', Opinion.APPROVE, ()),
        ('{"verdict": "revise",\n "findings": ["a major"]}\nSo.', Opinion.REVISE, (MAJOR,)),
        (
            '{"verdict": "revise", "findings": [{"severity": "awful", "text": "a major"}]}',
            Opinion.REVISE,
            (MAJOR,),
        ),
        ('{"verdict": "approve"}\nNo, wait.\n{"verdict": "revise"}', Opinion.REVISE, ()),
        ("It looks good to me.", Opinion.UNKNOWN, ()),
        ('{"verdict": "perhaps"}', Opinion.UNKNOWN, ()),
        ('{"verdict": "appro', Opinion.UNKNOWN, ()),
        ('{"verdict": "approve", "x": ' + "[" * 40_000, Opinion.UNKNOWN, ()),
        ('{"verdict": "approve"}\n' + '{"a":' * 900 + "[" * 40_000, Opinion.APPROVE, ()),
        ('{"a":' * 9_000, Opinion.UNKNOWN, ()),
        ("", Opinion.UNKNOWN, ()),
    ],
)
def test_the_last_verdict_is_read(words, opinion, findings):
    assert verdict_of(words) == (opinion, findings)


@pytest.mark.proves("T19")
@pytest.mark.parametrize(
    ("opinion", "findings", "is_approved"),
    [
        (Opinion.APPROVE, (), True),
        (Opinion.APPROVE, (NIT, MINOR), True),
        (Opinion.APPROVE, (MAJOR,), False),
        (Opinion.REVISE, (NIT, NIT), True),
        (Opinion.REVISE, (NIT, MINOR), False),
        (Opinion.REVISE, (), False),
        (Opinion.UNKNOWN, (), False),
    ],
)
def test_only_nits_are_an_approval_and_silence_is_none(opinion, findings, is_approved):
    assert Reviewed(1, 2, opinion, findings).is_approved is is_approved


def reviews(*opinions, findings=(MAJOR,)):
    found = [findings if each is Opinion.REVISE else () for each in opinions]
    return [
        Reviewed(n, n, each, of)
        for n, (each, of) in enumerate(zip(opinions, found, strict=True), 1)
    ]


@pytest.mark.proves("T19")
def test_whose_turn_it_is_after_a_review():
    yes, no, what = Opinion.APPROVE, Opinion.REVISE, Opinion.UNKNOWN
    limits = Review(rounds=2)
    assert after_review(reviews(yes), limits, Left()).step is Step.COMPLETE
    again = after_review(reviews(no), limits, Left())
    assert (again.step, again.stage) == (Step.BEGIN, Stage.WORK)
    ended = after_review(reviews(no, no), limits, Left())
    assert (ended.reason, "a major" in ended.why) == (Reason.NOT_APPROVED, True)
    asked = after_review(reviews(what), limits, Left())
    assert (asked.step, asked.stage, "no verdict" in asked.prompt) == (
        Step.BEGIN,
        Stage.REVIEW,
        True,
    )
    assert after_review(reviews(what, what), limits, Left()).reason is Reason.NOT_APPROVED
    assert after_review(reviews(what, yes), limits, Left()).step is Step.COMPLETE
    assert after_review(reviews(no), limits, Left(is_late=True)).reason is Reason.DEADLINE
    assert after_review(reviews(no), limits, Left(spent="all")).reason is Reason.BUDGET


def test_each_stage_has_its_agent_its_mode_and_its_session():
    assert [agent_at(WISH, each) for each in Stage] == ["scripted", "scripted", "codex"]
    assert [model_at(WISH, each) for each in Stage] == ["m", "m", ""]
    same = replace(WISH, review=Review())
    assert (agent_at(same, Stage.REVIEW), model_at(same, Stage.REVIEW)) == ("scripted", "m")
    assert [mode_at(WISH, each) for each in Stage] == [
        WorkMode.EXPLORE,
        WorkMode.IMPLEMENT,
        WorkMode.VALIDATE,
    ]
    assert first_stage(WISH) is Stage.WORK
    assert first_stage(replace(WISH, review=Review(plan=True))) is Stage.PLAN
    work = replace(begun(Conversation()), session="w")
    review = begun(work, "look", stage=Stage.REVIEW)
    assert (review.session, review.own_session) == ("", "w")
    asked = begun(replace(review, session="r"), "again", stage=Stage.REVIEW)
    assert (asked.session, asked.own_session) == ("r", "w")
    restarted = begun(asked, "go on")
    assert (restarted.stage, restarted.session, restarted.own_session) == (Stage.REVIEW, "r", "w")
    back = begun(restarted, "put it right", stage=Stage.WORK)
    assert (back.session, back.own_session, back.run) == ("w", "w", 5)


def test_everybody_is_told_what_they_need():
    assert "make a plan" in opening(WISH, Stage.PLAN)
    assert opening(WISH, Stage.WORK) == "Do it."
    assert planned_prompt(WISH, "the plan", resumes=True).startswith("Do it now, by your plan.")
    told = replace(WISH, rounds=Rounds(2))
    assert "- tests: `make`" in planned_prompt(told, "the plan", resumes=True)
    assert "the plan" in planned_prompt(WISH, "the plan", resumes=False)
    prompt = review_prompt(WISH, "the plan", "+one\n", is_cut=True)
    for part in ("    Do it.", "    the plan", "    +one", "not all of it", '{"verdict":'):
        assert part in prompt
    last = Reviewed(1, 2, Opinion.REVISE, (MAJOR, NIT))
    assert "- major: a major\n- nit: a nit" in revise_prompt(WISH, last, resumes=True)
    assert revise_prompt(WISH, last, resumes=False).startswith("Do it.")


@pytest.mark.parametrize(
    "wrong",
    [Review(rounds=11), Review(rounds=0), Review(min_lines=-1)],
)
def test_a_review_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidRequest):
        checked(replace(WISH, review=wrong))
    with pytest.raises(InvalidRequest):
        checked(replace(WISH, mode=WorkMode.EXPLORE))
    checked(replace(WISH, review=Review(rounds=0, plan=True)))
