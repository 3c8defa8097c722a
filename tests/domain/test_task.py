"""States of tasks, and what may follow what."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.budget import Budget, Left, Spent, standing
from paddock.domain.conversation import Conversation
from paddock.domain.errors import Conflict, InvalidRequest
from paddock.domain.reason import Reason
from paddock.domain.task import (
    TRANSITIONS,
    TaskRecord,
    TaskState,
    check_after,
    moved,
    transition,
    with_restarted_timeout,
)
from paddock.domain.task_wish import LONGEST_PROMPT, TaskWish, check_prompt, check_timeout

S = TaskState


def task(state: TaskState = S.PENDING, timeout_s: float = 60.0) -> TaskRecord:
    wish = TaskWish("do it", "command", timeout_s=timeout_s)
    return TaskRecord("tsk_1", "tem_1", "a", wish, 1.0, 1.0, state=state)


@pytest.mark.proves("T2")
def test_every_state_that_is_not_final_can_fail_and_be_cancelled():
    for state in S:
        ends = {S.FAILED, S.CANCELLED}
        assert ends <= TRANSITIONS[state] or state.is_final
        assert not (state.is_final and TRANSITIONS[state])


def test_the_clock_begins_with_the_workspace_and_ends_with_the_task():
    made = moved(task(timeout_s=60.0), S.CREATING, 10.0)
    assert (made.started_at, made.deadline, made.ended_at) == (10.0, 70.0, None)
    runs = moved(made, S.RUNNING, 20.0)
    assert (runs.started_at, runs.deadline) == (10.0, 70.0)
    failed = moved(runs, S.FAILED, 30.0, reason=Reason.DEADLINE, detail="an hour is over")
    assert (failed.ended_at, failed.reason) == (30.0, Reason.DEADLINE)


def test_what_comes_before_the_first_run_of_its_agent_takes_none_of_its_time():
    made = moved(task(timeout_s=60.0), S.CREATING, 10.0)
    assert with_restarted_timeout(made, 100.0).deadline == 160.0
    begun = replace(made, conversation=Conversation(run=1))
    assert with_restarted_timeout(begun, 100.0).deadline == 70.0


@pytest.mark.proves("T2")
@given(st.sampled_from(S), st.sampled_from(S))
def test_an_impossible_move_is_a_conflict_that_says_what_is_possible(current, target):
    if target in TRANSITIONS[current]:
        assert transition("tsk_1", current, target) is target
        return
    with pytest.raises(Conflict, match=f"is {current} and cannot become {target}") as refused:
        transition("tsk_1", current, target)
    assert refused.value.remediation


@pytest.mark.parametrize("prompt", ["", " \n", "a\0b", "x" * (LONGEST_PROMPT + 1)])
def test_prompts_that_no_agent_can_be_given_are_refused(prompt):
    with pytest.raises(InvalidRequest) as refused:
        check_prompt(prompt)
    assert refused.value.remediation


@pytest.mark.parametrize("prompt", ["$(rm -rf /)", "'\"`", "é" * 1000, "x" * LONGEST_PROMPT])
def test_any_other_text_is_a_prompt(prompt):
    assert check_prompt(prompt) == prompt


@pytest.mark.parametrize("seconds", [0, -1, 86_401, float("nan"), float("inf")])
def test_a_task_lasts_a_day_at_most(seconds):
    with pytest.raises(InvalidRequest):
        check_timeout(seconds)


def test_what_comes_before_has_to_be_completed():
    assert check_after("tsk_9", {})
    assert check_after("tsk_9", {"tsk_1": S.COMPLETED})
    assert not check_after("tsk_9", {"tsk_1": S.COMPLETED, "tsk_2": S.RUNNING})
    with pytest.raises(Conflict, match="tsk_2"):
        check_after("tsk_9", {"tsk_1": S.RUNNING, "tsk_2": S.FAILED})


def test_the_nearest_limit_decides_how_a_budget_stands():
    budget = Budget(tokens=1000, cost_usd=1.0)
    assert standing(Budget(), Spent(input_tokens=10**9)).left is Left.ENOUGH
    assert standing(budget, Spent(input_tokens=500)).left is Left.ENOUGH
    little = standing(budget, Spent(input_tokens=500, cost_usd=0.95))
    assert (little.left, little.of) == (Left.LITTLE, "cost_usd")
    nothing = standing(budget, Spent(input_tokens=600, output_tokens=400, cost_usd=0.1))
    assert (nothing.left, str(nothing)) == (Left.NOTHING, "1000 of 1000 tokens")


@pytest.mark.parametrize("wish", [{"tokens": 0}, {"cost_usd": -1.0}, {"turns": 0}])
def test_a_budget_of_nothing_is_refused(wish):
    with pytest.raises(InvalidRequest):
        Budget(**wish)


def test_of_what_was_counted_and_what_was_told_the_larger_counts():
    told = replace(task(), spent=Spent(60, 0, 40, 0.0, 3), metered=Spent(59, 0, 40, 5.0))
    assert told.used == Spent(60, 0, 40, 5.0, 3)
    thought = Spent(output_tokens=10, reasoning_tokens=6)
    assert thought.tokens == 10
    assert thought.plus(thought) == Spent(output_tokens=20, reasoning_tokens=12)
