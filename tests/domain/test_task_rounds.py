"""What follows from a round, and what the agent is told of it."""

from dataclasses import replace

import pytest

from paddock.domain.errors import InvalidRequest
from paddock.domain.reason import Reason
from paddock.domain.task_course import Step
from paddock.domain.task_faults import Fault
from paddock.domain.task_rounds import (
    Checked,
    CheckState,
    Left,
    Outcome,
    Round,
    after_round,
    broken_off,
    checked_again,
    first_prompt,
    judged,
    next_prompt,
    not_run,
)
from paddock.domain.task_wish import Check, Rounds, TaskWish, checked

TESTS, LINT = Check("tests", ("make", "test"), description="it adds up"), Check("lint", ("ruff",))
BAD = Checked("tests", 1, "assert 3 == 4", state=CheckState.FAILED)
FINE = Checked("lint", 0, state=CheckState.PASSED)
LATE = Checked("lint", 124, "begun", why="it was not over after 5 s")
WISH = TaskWish("Do it.", "scripted", checks=(TESTS, LINT), rounds=Rounds(3))


def of(number, *found, tree="t"):
    return judged(WISH.checks, found, number=number, run=number, tree=tree)


def after(*rounds, limits=WISH.rounds, left=None):
    return after_round(rounds, limits, left or Left())


@pytest.mark.proves("T13", "T14")
def test_what_passed_is_done_and_what_failed_is_tried_again():
    assert after(of(1, replace(BAD, state=CheckState.PASSED), FINE)).step is Step.COMPLETE
    assert after(of(1, BAD, FINE)).step is Step.BEGIN
    ended = after(of(1, BAD, FINE), of(2, BAD, FINE, tree="u"), of(3, BAD, FINE, tree="v"))
    assert (ended.step, ended.reason) == (Step.FAIL, Reason.CHECKS_FAILED)
    assert after(of(1, BAD, FINE), limits=Rounds()).reason is Reason.CHECKS_FAILED


@pytest.mark.proves("T13", "Q4")
def test_an_unknown_answer_is_no_pass_and_alone_it_is_no_fault_of_the_code():
    alone = of(1, replace(BAD, state=CheckState.PASSED), LATE)
    assert not alone.is_good
    assert after(alone).reason is Reason.SURROUNDINGS
    beside = of(1, BAD, LATE)
    assert (beside.fault, after(beside).step) == (Fault.CODE, Step.BEGIN)


def test_what_the_surroundings_surely_did_ends_it_whatever_else_failed():
    full = replace(FINE, exit_code=1, output="ENOSPC", state=CheckState.FAILED)
    assert after(of(1, BAD, full)).reason is Reason.SURROUNDINGS


@pytest.mark.proves("T13")
@pytest.mark.parametrize(
    ("left", "reason"),
    [(Left(is_late=True), Reason.DEADLINE), (Left(spent="2 of 2 turns"), Reason.BUDGET)],
)
def test_time_and_money_end_it(left, reason):
    assert after(of(1, BAD, FINE), left=left).reason is reason


def test_rounds_that_change_nothing_are_counted_in_a_row():
    many = Rounds(20)
    same = [of(n, BAD, FINE) for n in (1, 2, 3)]
    assert after(*same[:2], limits=many).step is Step.BEGIN
    assert after(*same, limits=many).reason is Reason.NO_PROGRESS
    assert after_round(same, many, Left(), begun_anew=1).step is Step.BEGIN
    moved = [same[0], of(2, BAD, FINE, tree="u"), of(3, BAD, FINE, tree="u")]
    assert after(*moved, limits=many).step is Step.BEGIN
    nobody_knows = [of(n, BAD, FINE, tree="") for n in (1, 2, 3, 4)]
    assert after(*nobody_knows, limits=many).step is Step.BEGIN


@pytest.mark.proves("T13")
def test_errors_are_counted_in_a_row():
    broke = [broken_off("it went wrong", number=n, run=n) for n in (1, 2, 3)]
    many = Rounds(20)
    assert after(*broke[:2], limits=many).step is Step.BEGIN
    assert after(*broke, limits=many).reason is Reason.AGENT_ERROR
    between = (*broke[:2], of(3, BAD, FINE), *broke[:2])
    assert after(*between, limits=many).step is Step.BEGIN
    refused = broken_off("API Error: 401", number=1, run=1)
    assert after(refused, limits=many).reason is Reason.SURROUNDINGS


@pytest.mark.proves("T14")
def test_the_agent_is_told_what_will_be_checked_and_what_was_wrong():
    assert first_prompt(WISH) == (
        "Do it.\n\nWhen you say that you are done, these are run, and each has to pass:\n"
        "- tests: it adds up (`make test`)\n- lint: `ruff`"
    )
    assert first_prompt(replace(WISH, rounds=Rounds())) == "Do it."
    assert "it adds up" in first_prompt(replace(WISH, rounds=Rounds(tell=True)))
    told = next_prompt(WISH, of(1, BAD, LATE), (BAD, LATE), resumes=True, words="ok")
    assert "The check tests (`make test`) failed with exit code 1. It proves: it adds up" in told
    assert "assert 3 == 4" in told
    assert "The check lint (`ruff`) gave no answer: it was not over after 5 s" in told
    assert not told.startswith("Do it.")
    anew = next_prompt(WISH, of(1, BAD, FINE), (BAD, FINE), resumes=False, words="my words")
    assert anew.startswith("Do it.")
    assert "my words" in anew
    long = replace(BAD, output="a" * 100_000 + "the end")
    told = next_prompt(WISH, of(1, long, FINE), (long, FINE), resumes=True, words="")
    assert "the end" in told
    assert len(told) < 4000


def test_what_nobody_ran_is_unknown():
    found = not_run(WISH.checks, [BAD], "it ended before")
    assert [(each.name, each.state) for each in found] == [("tests", "failed"), ("lint", "unknown")]
    assert checked_again({"name": "a", "exit_code": 0, "state": "passed"}).is_good


@pytest.mark.proves("T13")
def test_rounds_need_a_check_and_are_bounded():
    for wrong in (
        replace(WISH, checks=()),
        replace(WISH, rounds=Rounds(0)),
        replace(WISH, rounds=Rounds(21)),
        replace(WISH, checks=(TESTS, TESTS)),
        replace(WISH, checks=(replace(TESTS, description="x" * 2001),)),
    ):
        with pytest.raises(InvalidRequest):
            checked(wrong)
    assert checked(WISH) is WISH


def test_a_round_tells_of_itself():
    told = of(1, BAD, FINE).told(3)
    assert told == {
        "round": 1,
        "of": 3,
        "run": 1,
        "passed": ["lint"],
        "failed": ["tests"],
        "unknown": [],
        "fault": "code",
    }
    assert Round(1, 1, (Outcome("a", CheckState.PASSED),)).is_good
