"""Agents that show no sign of life: told so, asked about, and started again."""

import time

import pytest

from paddock.domain.approval import State
from paddock.domain.task import TaskState
from paddock.domain.task_wish import Check, Rounds
from paddock.domain.vitals import Thresholds
from paddock.services.task_config import TasksConfig
from paddock.settings import AgentsConfig, Settings
from tests.tasks.conftest import OWN, on_local

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
S = TaskState
LONG_S = 8.0
HEALTH = Thresholds(
    quiet_after_s=0.5,
    nudge_after_s=2.0,
    ask_after_s=4.0,
    restart_after_s=6.0,
    restart_cooldown_s=0.0,
    beat_every_s=0.5,
    most_diagnoses=0,
    stop_grace_s=11.0,  # more than the default
)


@pytest.fixture(scope="module")
async def working():
    settings = Settings(agents=AgentsConfig(own=(OWN,)), tasks=TasksConfig(health=HEALTH))
    async with on_local(settings) as made:
        yield made


@pytest.mark.proves("H4", "H5")
async def test_one_that_is_stuck_is_told_then_asked_about_then_started_again(working):
    task = await working.begin({"say": "x"}, {"hang": 1000}, {"say": "woken"})
    ended = await working.ended(task, 180)
    assert (ended.state, len(ended.restarts)) == (S.COMPLETED, 1), ended.detail
    steps = ("guardian.nudged", "guardian.asked", "task.restarted")
    kinds = [each.kind for each in await working.events(task)]
    assert [each for each in kinds if each in steps] == list(steps)
    (asked,) = await working.plane.services.approvals.of_task(task.id)
    assert asked.state is State.EXPIRED
    assert ended.result.message == "woken"


@pytest.mark.proves("H5")
async def test_what_was_silent_before_a_run_is_not_held_against_it(working):
    task = await working.begin(
        {"say": "x"},
        {"end": "one"},
        {"say": "y"},
        checks=(Check("slow", ("sh", "-c", f"sleep {LONG_S}; exit 1"), 120.0),),
        rounds=Rounds(most=2),
    )
    begun = await working.until(task, lambda now: now.conversation.run == 2, 120)
    assert begun.vitals.alive_at - task.created_at >= LONG_S
    ended = await working.ended(task, 120)
    assert (len(ended.rounds), ended.restarts) == (2, ())


@pytest.mark.proves("H4", "H5")
async def test_one_that_does_not_want_to_end_has_as_long_as_was_set(working):
    task = await working.begin({"stubborn": True}, {"say": "no"}, {"sleep": 100})
    await working.until(task, lambda now: now.conversation.judged.did_something, 120)
    asked = time.time()
    await working.tasks.cancel(working.who, task.id)
    ended = await working.ended(task, 120)
    assert ended.state is S.CANCELLED
    assert ended.ended_at - asked >= HEALTH.stop_grace_s
