"""Many tasks at once, while everything that can die does."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass

import aiohttp
import pytest

from paddock.testing.agent import prompt_of
from tests.tasks.conftest import OWN
from tests.wiring_server import Server, at_provider, destroy, provider_refs, server

STEPS = 12
SEED = "PADDOCK_TEST_SEED"


@dataclass(frozen=True)
class Scale:
    """How much is begun, and how much of it dies."""

    tasks: int
    kills: int
    guests: int
    """Tasks whose guest is killed. One more task loses its sandbox."""
    step_s: float
    seed: int | None = None
    """Without one, each run has another. The failure shows it; PADDOCK_TEST_SEED repeats it."""

    def work(self, number: int) -> str:
        steps: list[dict] = [{"say": f"task {number} begins"}]
        for step in range(STEPS):
            if step == STEPS - 2:  # not before the last kill
                steps.append({"run": "until [ -e finish ]; do sleep 0.2; done"})
            steps += [
                {"append": ["log", f"{step}\n"]},
                {"sleep": self.step_s},
                {"say": f"step {step}"},
            ]
        return prompt_of(*steps, {"say": "all of it"})

    def chance(self) -> random.Random:
        drawn = self.seed or int(os.environ.get(SEED) or random.randrange(1, 1 << 32))
        print(f"{SEED}={drawn}")
        return random.Random(drawn)


FEW = Scale(tasks=5, kills=5, guests=1, step_s=0.5, seed=5)
ALL = Scale(tasks=20, kills=20, guests=4, step_s=1.0)


async def insist(made: Server, method: str, path: str, body=None, **more) -> dict:
    """Until somebody answers: the server may be dead at any moment."""
    async with asyncio.timeout(120):
        while True:
            try:
                answer = await made.admin.call(method, path, body, within_s=20, **more)
            except (aiohttp.ClientError, TimeoutError, OSError):
                await asyncio.sleep(0.1)
                continue
            if answer.status < 500:
                assert answer.status < 300, answer.body
                return answer.body
            await asyncio.sleep(0.1)


async def kill_a_guest(made: Server, task: dict) -> None:
    """Of a sandbox in which an agent works."""
    async with at_provider(made.data) as provider:
        async for found in provider.find({"paddock.sandbox": task["sandbox_id"]}):
            record = provider._life.records.read(found.ref.id)
            os.kill(record.machine.guest.pid, signal.SIGKILL)


@pytest.mark.proves("T12")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(FEW, marks=pytest.mark.slow, id="few"),
        pytest.param(ALL, marks=pytest.mark.soak, id="all"),
    ],
)
async def test_tasks_survive_everything_that_dies_around_them(scale: Scale):
    chance = scale.chance()
    settings = {
        "agents__own": OWN,
        "tasks__at_once_per_team": "20",
        "tasks__health__restart_cooldown_s": "0",
        "tasks__health__restarts_per_hour": "20",
    }
    async with server(**settings) as made:
        tasks = [
            await insist(
                made,
                "POST",
                "/v1/tasks",
                {"prompt": scale.work(number), "agent": "scripted"},
                headers={"Idempotency-Key": f"chaos-{number}"},
            )
            for number in range(scale.tasks)
        ]
        messages = {}
        spared, destroyed = chance.sample(tasks, scale.tasks), ""
        await one_that_runs(made, spared)
        moments = chance.sample(range(scale.kills // 5, scale.kills - 2), scale.guests + 1)
        for number in range(scale.kills):
            await asyncio.sleep(chance.uniform(0.0, 2.5 * scale.step_s))
            await made.kill()
            await made.start()
            chosen = chance.choice(tasks)
            now = await insist(made, "GET", f"/v1/tasks/{chosen['id']}")
            if now["state"] == "running":
                body = {"text": f"note {number}", "mode": "now"}
                key = {"Idempotency-Key": f"note-{number}"}
                path = f"/v1/tasks/{chosen['id']}/messages"
                sent = await insist(made, "POST", path, body, headers=key)
                messages[sent["id"]] = chosen["id"]
            if number in moments:
                struck = await one_that_runs(made, spared)
                spared = [each for each in spared if each["id"] != struck["id"]]
                if number == moments[0]:
                    destroyed = struck["id"]
                    await destroy(made.data, struck["sandbox_id"])
                else:
                    await kill_a_guest(made, struck)
        for task in tasks:
            await finish(made, task["id"])
        ended = [await over(made, task["id"]) for task in tasks]
        assert made.starts == scale.kills + 1
        for task in ended:
            assert task["state"] == "completed", (task["id"], task["state"], task["detail"])
            assert len(task["losses"]) == (task["id"] == destroyed), task["losses"]
            await check_events(made, task)
            await check_work(made, task)
        for message, task_id in messages.items():
            told = await insist(made, "GET", f"/v1/tasks/{task_id}/messages/{message}")
            assert told["state"] == "seen", told
        assert len(spared) == scale.tasks - scale.guests - 1, "some kills did not happen"
        await made.stop()
        assert len(await provider_refs(made.data)) == scale.tasks, "an orphan, or one too few"


async def one_that_runs(made: Server, tasks: list[dict]) -> dict:
    async with asyncio.timeout(120):
        while True:
            for task in tasks:
                now = await insist(made, "GET", f"/v1/tasks/{task['id']}")
                if now["state"] == "running":
                    return now
            await asyncio.sleep(0.2)


async def finish(made: Server, task_id: str) -> None:
    """In the sandbox that it has then: the one before may just have been killed, or lost."""
    until = time.monotonic() + 120
    while True:
        now = await insist(made, "GET", f"/v1/tasks/{task_id}")
        body = {"cmd": ["touch", "finish"], "cwd": now["directory"]}
        ran = await made.admin.post(f"/v1/sandboxes/{now['sandbox_id']}/exec", body)
        if now["directory"] and ran.status == 200:
            return
        assert time.monotonic() < until, (now, ran.body, made.log()[-3000:])
        await asyncio.sleep(0.2)


async def over(made: Server, task_id: str) -> dict:
    async with asyncio.timeout(180):
        while not (now := await insist(made, "GET", f"/v1/tasks/{task_id}"))["ended_at"]:
            await asyncio.sleep(0.2)
    return now


async def check_events(made: Server, task: dict) -> None:
    """Each once, and in order; in each sandbox that it had, where the first was lost."""
    path = f"/v1/tasks/{task['id']}/events?format=ndjson&follow=false"
    told = [each async for each in made.admin.lines("GET", path)]
    assert [each["seq"] for each in told] == sorted({each["seq"] for each in told})
    kinds = Counter(each["kind"] for each in told)
    lives = 1 + len(task["losses"])
    for state in ("pending", "completing", "completed"):
        assert kinds[f"task.{state}"] == 1, kinds
    for state in ("creating", "running"):
        assert kinds[f"task.{state}"] == lives, kinds
    said = [each["data"]["text"] for each in told if each["kind"] == "agent.message"]
    steps = [text for text in said if text.startswith("step ")]
    assert steps[-STEPS:] == [f"step {n}" for n in range(STEPS)], steps
    assert steps[:-STEPS] == steps[-STEPS:][: len(steps) - STEPS], steps
    assert len(steps) == STEPS or lives > 1, steps
    assert said[-1] == "all of it"


async def check_work(made: Server, task: dict) -> None:
    path = f"/v1/sandboxes/{task['sandbox_id']}/exec"
    ran = await insist(made, "POST", path, {"cmd": ["cat", "log"], "cwd": task["directory"]})
    lines = ran["stdout"].split()
    # What a guest that died took with it may have been done, and is done again.
    assert list(dict.fromkeys(lines)) == [str(n) for n in range(STEPS)], lines
    assert len(lines) <= STEPS + 1
