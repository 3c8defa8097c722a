"""Two servers on one database, of which one or the other dies again and again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import aiohttp
import pytest

from paddock.testing.agent import prompt_of
from tests.databases import new_database
from tests.tasks.conftest import OWN
from tests.wiring_server import Server, provider_refs, server

STEPS = 6
ENDS = ("completed", "failed", "cancelled")
HELD = "until [ -e finish ]; do sleep 0.2; done"
PROCESSES = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
SETTINGS = {
    "agents__own": OWN,
    "tasks__at_once_per_team": "20",
    "tasks__health__restart_cooldown_s": "0",
}


@dataclass(frozen=True)
class Scale:
    """How many tasks there are, and how often servers die."""

    tasks: int
    kills: int
    asked: int
    """Tasks that wait for an answer."""
    unwanted: int
    """Tasks that are cancelled."""
    pauses_s: tuple[float, ...]
    """How long a server stays dead while the other lives. Leases of tasks last 6 s."""


FEW = Scale(tasks=4, kills=4, asked=1, unwanted=1, pauses_s=(0.0, 0.5, 7.0))
ALL = Scale(tasks=12, kills=12, asked=3, unwanted=3, pauses_s=(0.0, 7.0, 1.0, 7.0, 0.0, 1.0))


class Pair:
    """Whoever of the two answers will do."""

    def __init__(self, *servers: Server) -> None:
        self.servers = servers
        self._turn = 0

    async def insist(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Until one of them answers: either may be dead, and what it was asked then may be done."""
        async with asyncio.timeout(120):
            while True:
                self._turn += 1
                asked = self.servers[self._turn % len(self.servers)]
                try:
                    answer = await asked.admin.call(method, path, body, within_s=20, **more)
                except (aiohttp.ClientError, TimeoutError, OSError):
                    await asyncio.sleep(0.05)
                    continue
                if answer.status < 500:
                    return answer
                await asyncio.sleep(0.1)

    async def task(self, task_id: str) -> dict[str, Any]:
        return dict((await self.insist("GET", f"/v1/tasks/{task_id}")).body)

    async def until(self, task_id: str, *states: str) -> dict[str, Any]:
        async with asyncio.timeout(180):
            while (now := await self.task(task_id))["state"] not in states:
                await asyncio.sleep(0.2)
        return now

    async def begin(self, wish: dict[str, Any], number: int) -> str:
        body, key = {"agent": "scripted", **wish}, {"Idempotency-Key": f"task-{number}"}
        answer = await self.insist("POST", "/v1/tasks", body, headers=key)
        assert answer.status < 300, answer.body
        return str(answer.body["id"])

    async def meddle(self, number: int, tasks: Sequence[str], sent: dict[str, str]) -> None:
        """Say something to one that works."""
        task_id = tasks[number % len(tasks)]
        if (await self.task(task_id))["state"] == "running":
            body, key = {"text": f"note {number}", "mode": "now"}, f"note-{number}"
            path = f"/v1/tasks/{task_id}/messages"
            answer = await self.insist("POST", path, body, headers={"Idempotency-Key": key})
            assert answer.status < 300, answer.body
            sent[answer.body["id"]] = task_id

    async def answer(self, task_id: str, note: str) -> None:
        now = await self.until(task_id, "waiting")
        path = f"/v1/approvals/{now['waits_for']}/answer"
        body, key = {"answer": "allowed_once", "note": note}, {"Idempotency-Key": note}
        answer = await self.insist("POST", path, body, headers=key)
        assert answer.status < 300, answer.body

    async def finish(self, task_id: str) -> None:
        """What it waits for comes to be."""
        async with asyncio.timeout(120):
            while not (now := await self.task(task_id))["directory"]:
                await asyncio.sleep(0.2)
        await self.execute(now, "touch", "finish")

    async def execute(self, task: dict[str, Any], *command: str) -> str:
        path, where = f"/v1/sandboxes/{task['sandbox_id']}/exec", task["directory"]
        answer = await self.insist("POST", path, {"cmd": list(command), "cwd": where})
        assert answer.status < 300, answer.body
        return str(answer.body["stdout"])

    async def check_completed(self, task_id: str) -> None:
        """Each event once and in order, and the work done once."""
        task = await self.until(task_id, *ENDS)
        assert task["state"] == "completed", (task["state"], task["detail"])
        kinds, said = await self.told(task_id)
        for state in ("pending", "creating", "completing", "completed"):
            assert kinds[f"task.{state}"] == 1, kinds
        assert kinds["task.running"] == kinds["task.waiting"] + 1, kinds
        lines = (await self.execute(task, "cat", "log")).split()
        assert lines == [str(number) for number in range(len(lines))], lines
        if not kinds["task.waiting"]:
            assert [text for text in said if text.startswith("step")] == [
                f"step {number}" for number in range(STEPS)
            ]
        assert said[-1] == "all of it"

    async def check_cancelled(self, task_id: str) -> None:
        task = await self.until(task_id, *ENDS)
        assert task["state"] == "cancelled", (task["state"], task["detail"])
        kinds, _ = await self.told(task_id)
        assert kinds["task.cancelled"] == kinds["task.cancelling"] == 1, kinds
        assert "agent.py" not in await self.execute(task, "sh", "-c", PROCESSES)

    async def told(self, task_id: str) -> tuple[Counter[str], list[str]]:
        path = f"/v1/tasks/{task_id}/events?format=ndjson&follow=false"
        told = [each async for each in self.servers[0].admin.lines("GET", path)]
        assert [each["seq"] for each in told] == sorted({each["seq"] for each in told})
        said = [each["data"]["text"] for each in told if each["kind"] == "agent.message"]
        return Counter(each["kind"] for each in told), said


@asynccontextmanager
async def pair(database: str) -> AsyncIterator[Pair]:
    async with server(**SETTINGS, server__database=database) as first:
        second = first.beside()
        await second.start()
        try:
            yield Pair(first, second)
        finally:
            await second.stop()


def plain(number: int) -> str:
    """It is not over before somebody says so."""
    steps: list[dict[str, Any]] = [{"say": f"task {number} begins"}]
    for step in range(STEPS):
        steps += [{"append": ["log", f"{step}\n"]}, {"sleep": 0.5}, {"say": f"step {step}"}]
    return prompt_of(*steps, {"run": HELD}, {"say": "all of it"})


def dear() -> str:
    """It has used up its budget half-way, so that a person is asked."""
    return prompt_of(
        {"append": ["log", "0\n"]},
        {"usage": {"input_tokens": 80, "output_tokens": 40}},
        {"await": 1},
        {"append": ["log", "1\n"]},
        {"run": HELD},
        {"say": "all of it"},
    )


@pytest.mark.timeout(900)
@pytest.mark.proves("T12", "T18", "M2")
@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(FEW, marks=pytest.mark.slow, id="few"),
        pytest.param(ALL, marks=pytest.mark.soak, id="all"),
    ],
)
async def test_what_one_server_leaves_the_other_takes_up(postgres: str, scale: Scale) -> None:
    pauses = cycle(scale.pauses_s)
    async with new_database(postgres) as database, pair(database) as both:
        wishes = [{"prompt": plain(number)} for number in range(scale.tasks - scale.asked)]
        wishes += [{"prompt": dear(), "budget": {"tokens": 100}} for _ in range(scale.asked)]
        made = [await both.begin(wish, number) for number, wish in enumerate(wishes)]
        cancelled, asked = made[: scale.unwanted], made[-scale.asked :]
        worked = made[scale.unwanted : -scale.asked]
        sent: dict[str, str] = {}
        for number in range(scale.kills):
            dying = [both.servers[number % 2]] if number % 4 else list(both.servers)
            for each in dying:
                await each.kill()
            if len(dying) == 1:  # long enough for the other to notice, or not
                await both.meddle(number, worked, sent)
                await asyncio.sleep(next(pauses))
            for each in dying:
                await each.start()
            if number == scale.kills // 2:
                for task_id in cancelled:
                    await both.until(task_id, "running")
                    assert (await both.insist("POST", f"/v1/tasks/{task_id}/cancel")).status < 300
            if number >= scale.kills // 2 and (left := asked[number % scale.asked]) not in sent:
                await both.answer(left, f"answer {left}")
                sent[left] = ""
        for task_id in (*worked, *asked):
            await both.finish(task_id)
        for task_id in (*worked, *asked):
            await both.check_completed(task_id)
        for task_id in cancelled:
            await both.check_cancelled(task_id)
        for message, task_id in sent.items():
            if task_id:
                told = await both.insist("GET", f"/v1/tasks/{task_id}/messages/{message}")
                assert told.body["state"] == "seen", told.body
        first, second = both.servers
        assert first.starts + second.starts == 2 + scale.kills + scale.kills // 4
        await second.stop()
        await first.stop()
        assert len(await provider_refs(first.data)) == scale.tasks
