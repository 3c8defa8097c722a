"""Tasks that somebody is in the way of: they say so, and end when they are to."""

import asyncio
import os

import pytest

from paddock.domain.errors import Unavailable
from paddock.domain.reason import Reason
from paddock.domain.task import TaskState
from paddock.domain.task_wish import Check, Workspace
from paddock.ports.store import Page, SandboxFilter
from paddock.testing.reference import ReferenceProvider
from tests.control_plane import disposable
from tests.tasks.conftest import SETTINGS, Working, at_work, operator

S = TaskState
KEYS = {"ANTHROPIC_API_KEY": "sk-ant-not-a-key-of-anybody"}
MINUTE = 60.0
LATE = """echo '{"error": {"code": "ECONNREFUSED", "summary": "nobody answers"}}'; exit 1"""
NONE = """echo '{"error": {"code": "E404", "summary": "no such version"}}'; exit 1"""


class Hesitant(ReferenceProvider):
    """Makes nothing before it may, and can be away."""

    def __init__(self, place):
        super().__init__(place)
        self.may = asyncio.Event()
        self.may.set()
        self.asked = asyncio.Event()
        self.is_away = False

    async def create(self, key, spec):
        self.asked.set()
        await self.may.wait()
        return await super().create(key, spec)

    async def guest(self, ref):
        if self.is_away:
            raise Unavailable("the provider is away", remediation="wait for it")
        return await super().guest(ref)


@pytest.fixture(scope="module")
async def working():
    made = []

    def opened(place):
        made.append(Hesitant(place))
        return made[0]

    async with disposable(provider=opened, settings=SETTINGS) as plane, at_work(plane):
        working = Working(plane, await operator(plane))
        working.provider = made[0]
        yield working


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """An npm that does what is written here; nobody has to have one, nor a registry."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def write(script):
        program = tmp_path / "npm"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return tmp_path

    return write


async def of_claude(working, **more):
    return await working.begin({"say": "x"}, agent="claude_code", env=KEYS, **more)


async def sandboxes_of(working, task):
    wanted, page = SandboxFilter(labels={"task": task.id}), Page(10)
    return await working.plane.services.sandboxes.list(working.who, wanted, page)


async def go_away(working, task):
    """Whoever follows its agent loses it, and finds nobody there."""
    working.provider.is_away = True
    await working.plane.services.sandboxes._guests.forget(task.sandbox_id)


async def test_one_that_cannot_get_its_agent_says_so_once_and_ends_at_its_deadline(working, npm):
    npm(LATE)
    task = await of_claude(working, timeout_s=600.0)
    stands = await working.until(task, lambda now: now.detail)
    assert (stands.state, stands.phase) == (S.RUNNING, "agent")
    assert "npm does not reach its registry" in stands.detail
    await working.run_out_of_time(task)
    ended = await working.ended(task, MINUTE)
    assert (ended.state, ended.reason) == (S.FAILED, Reason.DEADLINE)
    assert "nobody answers (see whether this host has a way there" in ended.detail
    (told,) = await working.events(task, "task.stalled")
    assert "npm does not reach its registry" in told.data["why"]


async def test_one_whose_agent_cannot_be_had_at_all_fails_and_says_what_to_do(working, npm):
    npm(NONE)
    ended = await working.ended(await of_claude(working))
    assert (ended.state, ended.reason) == (S.FAILED, Reason.PROVIDER)
    assert "no such version (`npm config get registry` names it" in ended.detail
    assert not ended.conversation.run
    assert not ended.holds_work
    assert await working.events(ended, "task.stalled") == []


async def test_one_whose_agent_is_broken_fails_and_says_what_it_said(working):
    broken = {"command": ["sh", "-c", "echo 'cannot load libfoo.so' >&2; exit 127"]}
    ended = await working.done({"say": "x"}, agent="command", options=broken)
    assert ended.state is S.FAILED
    assert "cannot load libfoo.so" in ended.detail
    assert not ended.conversation.is_running


async def test_cancelling_does_not_wait_until_an_agent_is_installed(working, npm):
    place = npm(f'cd "${{0%/*}}"; touch begun; until [ -e go ]; do sleep 0.1; done; {NONE}')
    task = await of_claude(working)
    try:
        async with asyncio.timeout(MINUTE):
            while not (place / "begun").exists():
                await asyncio.sleep(0.02)
        await working.tasks.cancel(working.who, task.id)
        assert (await working.ended(task, MINUTE)).state is S.CANCELLED
    finally:
        (place / "go").touch()
    assert await sandboxes_of(working, task) == []


async def test_cancelling_does_not_wait_until_a_sandbox_is_made(working):
    working.provider.may.clear()
    working.provider.asked.clear()
    try:
        task = await working.begin({"say": "x"})
        async with asyncio.timeout(MINUTE):
            await working.provider.asked.wait()
        await working.tasks.cancel(working.who, task.id)
        ended = await working.ended(task, MINUTE)
    finally:
        working.provider.may.set()
    assert (ended.state, ended.reason) == (S.CANCELLED, Reason.CANCELLED)
    assert await sandboxes_of(working, task) == []
    wanted = {"paddock.sandbox": ended.sandbox_id} if ended.sandbox_id else {"task": task.id}
    assert [each async for each in working.provider.find(wanted)] == []


async def test_one_in_a_sandbox_that_was_set_aside_can_be_cancelled(working):
    care = working.plane.services.care.quarantines
    task = await working.begin({"say": "x"}, {"sleep": 300})
    task = await working.until(task, lambda now: now.conversation.judged.did_something)
    await care.set(working.who, task.sandbox_id, "odd")
    await working.until(task, lambda now: now.state is S.WAITING)
    await working.tasks.cancel(working.who, task.id)
    ended = await working.ended(task, MINUTE)
    assert (ended.state, ended.reason) == (S.CANCELLED, Reason.CANCELLED)
    assert "was set aside: odd" in ended.detail
    assert "was set aside" in ended.result.unseen
    assert ended.holds_work
    await working.plane.services.sandboxes.delete(working.who, task.sandbox_id, force=True)
    assert (await working.get(task)).state is S.CANCELLED


async def test_one_that_waits_for_a_sandbox_that_was_set_aside_goes_on_when_it_is_opened(working):
    made = await working.done({"say": "x"})
    care = working.plane.services.care.quarantines
    await care.set(working.who, made.sandbox_id, "odd")
    task = await working.begin({"say": "y"}, workspace=Workspace(sandbox=made.sandbox_id))
    stands = await working.until(task, lambda now: now.detail)
    assert (stands.state, "was set aside: odd" in stands.detail) == (S.CREATING, True)
    await care.clear(working.who, made.sandbox_id)
    ended = await working.ended(task, 2 * MINUTE)
    assert (ended.state, ended.detail) == (S.COMPLETED, "")


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_one_whose_provider_is_away_ends_when_it_is_to(working, is_cancelled):
    task = await working.begin({"say": "x"}, {"sleep": 300}, timeout_s=600.0)
    task = await working.until(task, lambda now: now.conversation.judged.did_something)
    await go_away(working, task)
    try:
        if is_cancelled:
            await working.until(task, lambda now: "provider is away" in now.detail)
            await working.tasks.cancel(working.who, task.id)
        else:
            await working.run_out_of_time(task)
        ended = await working.ended(task, MINUTE)
    finally:
        working.provider.is_away = False
    expected = (S.CANCELLED, Reason.CANCELLED) if is_cancelled else (S.FAILED, Reason.DEADLINE)
    assert (ended.state, ended.reason) == expected
    assert "the provider is away (wait for it)" in ended.detail
    assert ended.holds_work


async def test_cancelling_works_while_checks_run_and_while_it_waits_for_somebody(working):
    checked = await working.begin({"write": ["a", "1"]}, checks=(Check("slow", ("sleep", "99")),))
    paused = await working.begin({"say": "x"}, {"sleep": 300})
    await working.until(checked, lambda now: now.phase == "build_check")
    await working.until(paused, lambda now: now.conversation.judged.did_something)
    await working.tasks.pause(working.who, paused.id)
    await working.until(paused, lambda now: now.state is S.WAITING)
    for task in (checked, paused):
        await working.tasks.cancel(working.who, task.id)
        assert (await working.ended(task, MINUTE)).state is S.CANCELLED
