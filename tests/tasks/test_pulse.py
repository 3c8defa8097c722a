"""Signs of life of a sandbox whose agent works: each is asked for by number, and missed aloud."""

import asyncio
import os
import signal

import pytest

from paddock.domain.message import Mode
from paddock.domain.task import TaskState
from paddock.domain.vitals import Pulse, Thresholds
from paddock.services.task_config import TasksConfig
from paddock.settings import AgentsConfig, Settings
from tests.engines import open_local
from tests.tasks.conftest import OWN, on_local

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
S = TaskState
HEALTH = Thresholds(beat_every_s=0.5, beat_lasts_s=2.0, restart_after_s=0.0)
LEVELS = [Pulse.LATE, Pulse.DEGRADED, Pulse.LOST]


async def guest_of(task):
    async with open_local() as provider:
        async for found in provider.find({"paddock.sandbox": task.sandbox_id}):
            return provider._life.records.read(found.ref.id).machine.guest.pid
    raise AssertionError("it has no guest")


async def told(working, task):
    return [each.data for each in await working.events(task, "task.pulse")]


async def until_told(working, task, pulse):
    async with asyncio.timeout(120):
        while pulse not in [each["pulse"] for each in await told(working, task)]:
            await asyncio.sleep(0.1)


@pytest.mark.proves("H1", "H2")
async def test_a_guest_that_says_nothing_is_told_of_step_by_step_and_so_is_its_return():
    settings = Settings(agents=AgentsConfig(own=(OWN,)), tasks=TasksConfig(health=HEALTH))
    async with on_local(settings) as working:
        task = await working.begin({"say": "x"}, {"await": 1}, {"say": "done"})
        steady = await working.until(
            task, lambda now: now.vitals is not None and now.vitals.seq > 3
        )
        assert (steady.pulse, steady.vitals.missing) == (Pulse.STEADY, 0)
        guest = await guest_of(steady)
        os.kill(guest, signal.SIGSTOP)
        try:
            await until_told(working, task, Pulse.LOST)
            silent = await working.get(task)
            assert (silent.state, silent.pulse) == (S.RUNNING, Pulse.LOST)
            assert silent.vitals.missing > 0
        finally:
            os.kill(guest, signal.SIGCONT)
        await until_told(working, task, Pulse.STEADY)
        await working.tasks.send(working.who, task.id, "go on", Mode.NOW)
        ended = await working.ended(task, 120)
        assert (ended.state, ended.restarts) == (S.COMPLETED, ()), ended.detail
        data = await told(working, task)
    seen = [each["pulse"] for each in data]
    assert seen[-1] == Pulse.STEADY
    # On a slow machine a look may take so long that a step is passed by.
    assert [each for each in LEVELS if each in seen] == seen[:-1]
    assert all(each["silent_s"] >= HEALTH.beat_lasts_s for each in data[:-1])
