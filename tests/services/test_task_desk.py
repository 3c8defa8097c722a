"""Who speaks without end at a task's desk holds up nobody else."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from uuid import uuid4

import pytest

from paddock.adapters.agents.command import Command
from paddock.domain.conversation import Conversation
from paddock.domain.task import TaskRecord
from paddock.domain.task_wish import TaskWish
from paddock.domain.team import Team
from paddock.guest_client.desks import DeskCall
from paddock.ports.store import ANY_TEAM
from paddock.services.task_desk import TOKEN, TaskDesks
from paddock.services.task_post import Setting
from paddock.testing.clock import ManualClock
from tests.adapters.agents.recorded import brief
from tests.adapters.store.conftest import place, postgres_place, sqlite_place, store

__all__ = ["place", "postgres_place", "sqlite_place", "store"]  # fixtures


class Room:
    """A sandbox with a desk and somebody at it."""

    def __init__(self):
        self.calls, self.answers = asyncio.Queue(), asyncio.Queue()
        self.number = 0

    async def open(self, _run):
        return 1

    async def take(self, _run, _after, *, wait_s):
        return [await self.calls.get()]

    async def answer(self, _run, _call, status, body):
        await self.answers.put((status, json.loads(body)))

    async def close(self, _run):
        pass

    async def say(self, token, path, **said):
        self.number += 1
        headers = {"authorization": f"Bearer {token}"}
        body = json.dumps(said).encode()
        await self.calls.put(DeskCall(str(self.number), self.number, "POST", path, headers, body))
        async with asyncio.timeout(60):
            return await self.answers.get()


@pytest.mark.proves("T15")
async def test_a_run_speaks_only_so_often_and_its_verdicts_are_told_only_so_many_times(store):
    team = Team(f"tem_{uuid4().hex}", uuid4().hex, 1.0)
    task = TaskRecord(f"tsk_{uuid4().hex}", team.id, "a", TaskWish("do it", "command"), 1.0, 1.0)
    task = replace(task, sandbox_id="sbx_a", conversation=Conversation(run=1))
    await store.write(lambda tx: (tx.teams.add(team), tx.tasks.add(task)))
    clock, room = ManualClock(), Room()
    given = Setting(Command(), SimpleNamespace(desks=room), brief(options={"command": ["x"]}))

    async def kept():
        return await store.read(lambda tx: tx.tasks.get(ANY_TEAM, task.id))

    async def say(laid, detail):
        token = laid.brief.env[TOKEN]
        return await room.say(token, "/verdict", name="tests", passed=True, detail=str(detail))

    desks = TaskDesks(store, clock, questions=None)
    async with desks.at(task, given) as laid:
        found = [await say(laid, number % 2) for number in range(25)]
        assert [status for status, _ in found] == [200] * 20 + [429] * 5
        assert "more often than 5 times a second" in found[-1][1]["error"]["message"]
        assert (await kept()).claims_told.count == 20
        clock.advance(1)
        again = [(await say(laid, number % 2))[0] for number in range(6)]
        assert again == [200] * 5 + [429]
    # Whoever takes the task over goes on counting.
    async with desks.at(task, given) as laid:
        before = (await kept()).claims_told.count
        for number in range(before, 200):
            clock.advance(1)
            assert (await say(laid, f"no. {number}"))[0] == 200
        clock.advance(1)
        status, told = await say(laid, "one more")
        assert (status, (await kept()).claims_told.count) == (429, 200)
        assert "200 verdicts were told in this run" in told["error"]["message"]
        assert (await say(laid, "no. 199"))[0] == 200  # which is nothing new
    await store.write(
        lambda tx: tx.tasks.replace(
            replace(tx.tasks.get(ANY_TEAM, task.id), conversation=Conversation(run=2))
        )
    )
    async with desks.at(await kept(), given) as laid:
        assert (await say(laid, "of the next run"))[0] == 200
