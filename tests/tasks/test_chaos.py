"""Twenty tasks at once, while everything that can die does."""

import asyncio
import os
import random
import signal
from collections import Counter

import aiohttp
import pytest

from paddock.testing.agent import prompt_of
from tests.tasks.conftest import OWN
from tests.wiring_server import Server, at_provider, destroy, provider_refs, server

TASKS = 20
KILLS = 20
GUESTS = 4
"""Whose processes are killed, each of another task."""
STEPS = 12


def work(number: int) -> str:
    steps: list[dict] = [{"say": f"task {number} begins"}]
    for step in range(STEPS):
        if step == STEPS - 2:  # not before everything has died that shall
            steps.append({"run": "until [ -e finish ]; do sleep 1; done"})
        steps += [{"append": ["log", f"{step}\n"]}, {"sleep": 1.0}, {"say": f"step {step}"}]
    return prompt_of(*steps, {"say": "all of it"})


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


@pytest.mark.timeout(600)
@pytest.mark.proves("T4", "H5", "R2")
async def test_tasks_survive_everything_that_dies_around_them():
    chance = random.Random(5)
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
                {"prompt": work(number), "agent": "scripted"},
                headers={"Idempotency-Key": f"chaos-{number}"},
            )
            for number in range(TASKS)
        ]
        messages = {}
        spared, destroyed = chance.sample(tasks, TASKS), ""
        await one_that_runs(made, spared)
        moments = chance.sample(range(4, KILLS - 2), GUESTS + 1)
        for number in range(KILLS):
            await asyncio.sleep(chance.uniform(0.0, 2.5))
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
        assert made.starts == KILLS + 1
        for task in ended:
            assert task["state"] == "completed", (task["id"], task["state"], task["detail"])
            assert len(task["losses"]) == (task["id"] == destroyed), task["losses"]
            await check_events(made, task)
            await check_work(made, task)
        for message, task_id in messages.items():
            told = await insist(made, "GET", f"/v1/tasks/{task_id}/messages/{message}")
            assert told["state"] == "seen", told
        assert len(spared) == TASKS - GUESTS - 1, "not everything was killed that was to be"
        await made.stop()
        assert len(await provider_refs(made.data)) == TASKS, "an orphan, or one too few"


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
    async with asyncio.timeout(120):
        while True:
            now = await insist(made, "GET", f"/v1/tasks/{task_id}")
            body = {"cmd": ["touch", "finish"], "cwd": now["directory"]}
            path = f"/v1/sandboxes/{now['sandbox_id']}/exec"
            if now["directory"] and (await made.admin.post(path, body)).status == 200:
                return
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
