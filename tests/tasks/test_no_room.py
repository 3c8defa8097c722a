"""A task whose sandbox there is no room for waits for it, says so, and goes on by itself."""

import asyncio
from dataclasses import replace

import pytest

from paddock.domain.errors import LimitExceeded, QuotaExceeded
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Limits
from paddock.domain.task import TaskState as S
from paddock.domain.task_wish import Workspace
from paddock.services.wishes import Wish
from paddock.testing.reference import ReferenceProvider
from tests.control_plane import disposable
from tests.tasks.conftest import SETTINGS, Working, at_work, operator

pytestmark = pytest.mark.timeout(180)
ALERT_S = 1.0
ALERTING = replace(SETTINGS, tasks=replace(SETTINGS.tasks, alert_after_s=ALERT_S))


class Small(ReferenceProvider):
    """A vendor's account: room for one, and none of its machines is large."""

    most = 1

    async def create(self, key, spec):
        if spec.resources.memory_mib > 4096:
            raise LimitExceeded("the largest machine has 4096 MiB", remediation="ask for less")
        taken = [each async for each in self.find({}) if each.key != key]
        if len(taken) >= self.most:
            raise QuotaExceeded(
                f"{len(taken)} of {self.most} machines are taken",
                remediation="delete some",
                retry_after_s=2.0,
            )
        return await super().create(key, spec)


@pytest.fixture
async def working():
    async with disposable(provider=Small, settings=ALERTING) as plane, at_work(plane):
        yield Working(plane, await operator(plane))


async def occupied(working):
    sandboxes = working.plane.services.sandboxes
    return await sandboxes.create(working.who, Wish(template="plain"))


async def on_page(working):
    answer = await working.plane.admin.get("/v1/system/status")
    return [each for each in answer["strays"] if each["kind"] == "held_up"]


async def stands(working):
    task = await working.begin({"say": "x"}, timeout_s=90.0)
    return await working.until(task, lambda now: now.detail)


@pytest.mark.slow
@pytest.mark.proves("P15", "H9")
async def test_a_task_without_room_waits_alerts_and_goes_on_when_there_is_some(working):
    other = await occupied(working)
    task = await stands(working)
    assert (task.state, task.phase) == (S.CREATING, "sandbox")
    assert task.detail == "1 of 1 machines are taken (delete some)"
    assert await on_page(working) == []
    async with asyncio.timeout(60):
        while not (page := await on_page(working)):
            await asyncio.sleep(0.1)
    (shown,) = page
    assert (shown["id"], shown["detail"]) == (task.id, task.detail)
    (stalled,) = await working.events(task, "task.stalled")
    (held_up,) = await working.events(task, "task.held_up")
    assert held_up.data["code"] == "quota_exceeded"
    assert held_up.at - held_up.data["since"] >= ALERT_S
    assert stalled.seq < held_up.seq
    await working.plane.services.sandboxes.delete(working.who, other.id)
    ended = await working.ended(task)
    assert (ended.state, ended.detail, ended.standing) == (S.COMPLETED, "", None)
    assert len(await working.events(task, "task.held_up")) == 1
    assert await on_page(working) == []


@pytest.mark.proves("P15", "H9")
async def test_one_that_waits_for_room_can_be_cancelled(working):
    other = await occupied(working)
    task = await stands(working)
    await working.tasks.cancel(working.who, task.id)
    assert (await working.ended(task, 10.0)).state is S.CANCELLED
    listed = await working.plane.admin.get("/v1/sandboxes")
    assert [each["id"] for each in listed["items"]] == [other.id]


@pytest.mark.proves("P15", "H9")
async def test_one_that_waits_for_room_ends_at_its_deadline_and_says_for_what(working):
    await occupied(working)
    task = await stands(working)
    await working.run_out_of_time(task)
    ended = await working.ended(task)
    assert (ended.state, ended.reason) == (S.FAILED, Reason.DEADLINE)
    assert "it stood still: 1 of 1 machines are taken" in ended.detail


@pytest.mark.proves("P15", "H9")
async def test_one_that_asks_for_more_than_there_can_be_fails_at_once(working):
    large = Workspace(template="plain", resources=Limits(memory_mib=8192))
    ended = await working.done({"say": "x"}, workspace=large)
    assert (ended.state, ended.reason) == (S.FAILED, Reason.SANDBOX_UNAVAILABLE)
    assert "the largest machine has 4096 MiB" in ended.detail
    assert await working.events(ended, "task.stalled") == []


@pytest.mark.proves("P15")
async def test_who_asks_for_a_sandbox_is_told_at_once_and_when_to_ask_again(working):
    await occupied(working)
    refused = await working.plane.admin.post("/v1/sandboxes", {"template": "plain"})
    assert (refused.status, refused.error["code"]) == (429, "quota_exceeded")
    assert refused.error["retryable"] is True
    assert refused.headers["retry-after"] == "2"
