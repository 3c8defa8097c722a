"""A control plane that works at tasks, with an agent that does what its prompt says."""

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.task_wish import TaskWish, Workspace
from paddock.domain.vitals import Thresholds
from paddock.services.commands import Command
from paddock.services.events import Interest
from paddock.services.task_config import TasksConfig
from paddock.services.task_plans import Submission
from paddock.settings import AgentsConfig, Settings
from paddock.testing.agent import prompt_of
from tests.control_plane import disposable
from tests.engines import local_config

OWN = "paddock.testing.agent:ScriptedAgent"
# An agent in the middle of a step does not hear that it is asked to end: it is ended by force.
HEALTH = Thresholds(restart_cooldown_s=0.0, beat_every_s=0.5, stop_grace_s=1.0)
SETTINGS = Settings(agents=AgentsConfig(own=(OWN,)), tasks=TasksConfig(health=HEALTH))


class Working:
    """A control plane, seen by somebody who gives it tasks."""

    def __init__(self, plane, who, template="plain"):
        self.plane = plane
        self.who = who
        self.template = template
        self.tasks = plane.services.tasks

    async def begin(self, *steps, **more):
        wish = {"agent": "scripted", "workspace": Workspace(template=self.template), **more}
        submitted = Submission(TaskWish(prompt_of(*steps), **wish))
        return await self.tasks.create(self.who, submitted)

    def place(self, task):
        """Where that one worked."""
        return Workspace(sandbox=task.sandbox_id, directory=task.directory)

    async def get(self, task):
        return await self.tasks.get(self.who, task.id)

    async def until(self, task, holds, within_s=60.0):
        async with asyncio.timeout(within_s):
            while not holds(now := await self.get(task)):
                await asyncio.sleep(0.02)
        return now

    async def ended(self, task, within_s=60.0):
        return await self.until(task, lambda now: now.state.is_final, within_s)

    async def done(self, *steps, **more):
        return await self.ended(await self.begin(*steps, **more))

    async def run_out_of_time(self, task):
        """Its deadline is now, however long the test took to get here."""

        def change(tx):
            tx.tasks.replace(replace(tx.tasks.get("", task.id), deadline=time.time()))

        await self.plane.services.store.write(change)

    async def events(self, task, kind=""):
        told = await self.plane.services.events.page(Interest(subject=task.id), 0, 100_000)
        return [each for each in told if each.kind.startswith(kind)]

    async def said(self, task):
        return [each.data["text"] for each in await self.events(task, "agent.message")]

    async def read(self, task, path):
        ran = await self.plane.services.commands.run(
            self.who, task.sandbox_id, command("cat", "--", f"{task.directory}/{path}")
        )
        return ran.stdout.decode()


def command(*argv):
    return Command(argv)


@asynccontextmanager
async def at_work(plane):
    """Its workers are at it."""
    async with asyncio.TaskGroup() as group:
        rounds = [
            group.create_task(each.run())
            for each in (
                plane.rounds.task_workers,
                plane.rounds.task_waking,
                plane.rounds.message_expiry,
            )
        ]
        yield
        for each in rounds:
            each.cancel()


@pytest.fixture(scope="module")
async def working(database):
    async with disposable(database=database, settings=SETTINGS) as plane, at_work(plane):
        who = await operator(plane)
        yield Working(plane, who)


@asynccontextmanager
async def on_local(settings):
    """On the local provider, where an agent has a machine of its own."""

    def opened(_place):
        return LocalProvider.open(local_config())

    async with disposable(provider=opened, settings=settings) as plane, at_work(plane):
        yield Working(plane, await operator(plane), "base")


async def operator(plane):
    return await plane.services.access.authenticate(plane.admin.token)
