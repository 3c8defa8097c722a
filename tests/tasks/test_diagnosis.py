"""Tasks that are stuck: what is found out about them, how often, and who is asked."""

import asyncio
import json

import pytest

from paddock.domain.approval import Answer, State
from paddock.domain.task import TaskState
from paddock.domain.vitals import Thresholds
from paddock.services.task_config import TasksConfig
from paddock.settings import AgentsConfig, Settings
from tests.tasks.conftest import OWN, on_local

pytestmark = pytest.mark.timeout(180)
S = TaskState
HIDE = "a-value-that-nobody-reads"
HEALTH = Thresholds(
    quiet_after_s=0.5,
    nudge_after_s=1.0,
    ask_after_s=0.0,
    restart_after_s=0.0,
    beat_every_s=0.3,
    stop_grace_s=1.0,
    diagnose_cooldown_s=1.0,
    most_diagnoses=2,
)


@pytest.fixture(scope="module")
async def working():
    settings = Settings(agents=AgentsConfig(own=(OWN,)), tasks=TasksConfig(health=HEALTH))
    async with on_local(settings) as made:
        yield made


@pytest.mark.slow
@pytest.mark.proves("H7")
async def test_one_that_is_stuck_is_looked_into_a_few_times_and_then_a_person_is_asked(working):
    hangs = f"sh -c 'exec sleep 700' {HIDE} --token hunter2-hunter2"
    task = await working.begin(
        {"say": f"I wait. {HIDE}"}, {"run": hangs}, env={"KEY": HIDE}, guardian={"loop": "off"}
    )
    stuck = await working.until(task, lambda now: now.state is S.WAITING, within_s=90)
    assert len(stuck.diagnoses) == 2
    assert stuck.diagnoses[1] - stuck.diagnoses[0] >= HEALTH.diagnose_cooldown_s
    assert "it was looked into 2 times" in stuck.detail
    found = [each.data for each in await working.events(task, "task.diagnosis")]
    assert len(found) == 2
    (sleeps,) = [each for each in found[1]["processes"] if each["command"].startswith("sleep 700")]
    assert (sleeps["state"], sleeps["cpu_s"]) == ("S", 0.0)
    assert found[0]["memory_mib"]["total"] > 0
    assert any("message: I wait." in line for line in found[0]["lines"])
    assert found[0]["missing"] == []
    for hidden in (HIDE, "hunter2"):
        assert hidden not in json.dumps(found)
    approvals = working.plane.services.approvals
    asked = await approvals.get(working.who, stuck.waits_for)
    assert "paddock task diagnose" in asked.title
    later = await working.plane.services.care.diagnosis.ask(working.who, task.id)
    assert later.questions == (asked.title,)
    assert HIDE not in json.dumps(later.data)
    await approvals.answer(working.who, stuck.waits_for, Answer(State.DENIED))
    assert (await working.ended(task)).state is S.FAILED


@pytest.mark.proves("H7")
async def test_one_that_works_is_not_looked_into_and_one_that_sleeps_is_not_woken(working):
    busy = "timeout 2.5 sh -c 'while :; do :; done'"
    task = await working.done({"run": busy}, {"say": "done"})
    assert (task.state, task.diagnoses) == (S.COMPLETED, ())
    sandboxes = working.plane.services.sandboxes
    await sandboxes.stop(working.who, task.sandbox_id)
    async with asyncio.timeout(30):
        found = await working.plane.services.care.diagnosis.ask(working.who, task.id)
    assert found.processes == ()
    (missing,) = found.missing
    assert "stopped" in missing
    assert (await sandboxes.get(working.who, task.sandbox_id)).state == "stopped"
