"""Around the loss of a task's sandbox: while the task rests, to what people had set, and when what
was lost is seen again."""

import asyncio
import os
import signal
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.agent import WorkMode
from paddock.domain.approval import Kind, State
from paddock.domain.desk.saying import Ask
from paddock.domain.egress import EgressWish, NetworkMode
from paddock.domain.errors import Conflict, LimitExceeded, NotFound, Unavailable
from paddock.domain.message import Mode
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.domain.snapshot import SnapshotRef
from paddock.domain.task import TaskState
from paddock.domain.task_wish import Workspace
from paddock.services.system import system
from paddock.services.taking import Capture
from paddock.testing.reference import ReferenceProvider
from tests.control_plane import disposable
from tests.engines import local_config
from tests.tasks.conftest import SETTINGS, Working, at_work, on_local, operator
from tests.tasks.test_replaced import (
    UNTIL_TOUCHED,
    in_its_next,
    lose,
    lost_twice,
    said,
    set_to,
    touch,
)

S = TaskState


class Veiled(ReferenceProvider):
    """Some of its machines cannot be seen for a while, or do not answer until they are started
    again, and it allows only so many requests."""

    def __init__(self, place):
        super().__init__(place)
        self.hidden = set()
        self.silent = set()
        self.is_busy = False
        self.is_away = False

    async def observe(self, ref):
        self._check_there()
        if ref.id in self.hidden:
            raise NotFound(f"there is no {ref.id}")
        return await super().observe(ref)

    async def find(self, labels):
        self._check_there()
        async for each in super().find(labels):
            if each.ref.id not in self.hidden:
                yield each

    async def stop(self, ref, reason=Reason.USER):
        self._check_seen(ref)
        return await super().stop(ref, reason)

    async def start(self, ref):
        self.silent.discard(ref.id)
        return await super().start(ref)

    async def destroy(self, ref):
        self._check_seen(ref)
        await super().destroy(ref)

    async def guest(self, ref):
        self._check_there()
        if self.is_busy:
            raise LimitExceeded("too many requests", retry_after_s=1.0)
        if ref.id in self.silent:
            raise Unavailable(f"the guest of {ref.id} does not answer")
        return await super().guest(ref)

    def _check_there(self):
        if self.is_away:
            raise Unavailable("nobody is there")

    def _check_seen(self, ref):
        self._check_there()
        if ref.id in self.hidden:
            raise Unavailable("its host is out of reach")


@asynccontextmanager
async def veiled(settings=SETTINGS):
    made = []

    def opened(place):
        made.append(Veiled(place))
        return made[0]

    async with disposable(provider=opened, settings=settings) as plane, at_work(plane):
        yield Working(plane, await operator(plane)), made[0]


@pytest.fixture(scope="module")
async def local():
    async with on_local(SETTINGS) as working:
        yield working


async def box(working, sandbox_id):
    return await working.plane.services.store.read(lambda tx: tx.sandboxes.get("", sandbox_id))


async def test_nothing_goes_on_in_a_machine_that_is_seen_again(tmp_path):
    beats = tmp_path / "beats"
    async with veiled() as (working, provider):
        task = await working.begin(
            {"say": "one"}, {"run": f"while :; do echo $PPID >> {beats}; sleep 0.05; done"}
        )
        before = await said(working, task, "one")
        lost = await box(working, before.sandbox_id)
        provider.hidden.add(lost.ref)
        await working.plane.rounds.reconciler.look()
        now = await in_its_next(working, task, before.sandbox_id)
        await said(working, task, "one", times=2)
        provider.hidden.clear()
        await working.plane.rounds.reconciler.look()
        async with asyncio.timeout(30):
            while len(await running(provider)) > 1:
                await asyncio.sleep(0.05)
        beats.unlink()
        await asyncio.sleep(0.5)
        assert len(set(beats.read_text().split())) == 1, "two agents are at work"
        assert await running(provider) == [(await box(working, now.sandbox_id)).ref]
        assert (await box(working, before.sandbox_id)).state is SandboxState.FAILED
        await working.tasks.cancel(working.who, task.id)
        await working.ended(task)


async def running(provider):
    return [each.ref.id async for each in provider.find({}) if each.state is SandboxState.RUNNING]


@asynccontextmanager
async def resting(opened):
    """A task that has lost its second sandbox, and waits until it may have a third."""
    async with opened as working:
        yield working, await lost_twice(working)


RESTS = replace(SETTINGS.tasks.health, restart_cooldown_s=600.0)


async def rested(working, task):
    """The end of a task whose cool-down has passed."""

    def change(tx):
        now = tx.tasks.get("", task.id)
        long_ago = tuple(at - RESTS.restart_cooldown_s for at in now.restarts)
        tx.tasks.replace(replace(now, restarts=long_ago))

    await working.plane.services.store.write(change)
    return await woken(working, task)


async def woken(working, task):
    """The end of a task that rests. A message wakes it, unless it begins to rest at that moment."""
    async with asyncio.timeout(60):
        while not (now := await working.get(task)).state.is_final:
            with suppress(Conflict):
                await working.tasks.send(working.who, task.id, "look again", Mode.NOW)
            await asyncio.sleep(0.5)
    return now


async def test_what_is_deleted_while_its_task_rests_is_not_replaced():
    async with resting(set_to(health=RESTS)) as (working, task):
        await working.plane.services.sandboxes.delete(working.who, task.sandbox_id, force=True)
        ended = await rested(working, task)
        assert (ended.state, len(ended.losses)) == (S.FAILED, 1)
        assert "which somebody wanted" in ended.detail


async def test_what_is_set_aside_while_its_task_rests_is_not_replaced():
    settings = replace(SETTINGS, tasks=replace(SETTINGS.tasks, health=RESTS))
    async with resting(on_local(settings)) as (working, task):
        quarantines = working.plane.services.care.quarantines
        await quarantines.set(system(task.team_id, "test"), task.sandbox_id, "it is odd")
        ended = await rested(working, task)
        assert (ended.state, len(ended.losses)) == (S.FAILED, 1)
        assert "it is odd" in ended.detail


async def test_a_deadline_that_passes_while_it_rests_says_so():
    async with set_to(health=RESTS) as working:
        task = await lost_twice(working, timeout_s=600.0)
        await working.run_out_of_time(task)
        ended = await woken(working, task)
        assert (ended.state, ended.reason) == (S.FAILED, Reason.DEADLINE)
        assert "could go on in another sandbox" in ended.detail


@pytest.mark.parametrize("is_kept", [True, False], ids=["of a snapshot", "of its template"])
async def test_what_people_have_forbidden_the_lost_one_the_next_may_not_either(local, is_kept):
    egress = EgressWish(mode=NetworkMode.ALLOWLIST)
    place = Workspace(template="base", egress=egress)
    task = await local.begin({"say": "one"}, UNTIL_TOUCHED, workspace=place)
    before = await said(local, task, "one")
    path = f"/v1/sandboxes/{before.sandbox_id}/egress"
    assert (await local.plane.admin.call("PUT", path, {"mode": "none"})).status == 200
    if is_kept:
        await local.plane.services.snapshots.take(local.who, before.sandbox_id, Capture())
    await lose(local, before.sandbox_id)
    now = await in_its_next(local, task, before.sandbox_id)
    assert (await box(local, now.sandbox_id)).egress.mode is NetworkMode.NONE
    await local.tasks.cancel(local.who, task.id)
    await local.ended(task)


async def test_a_copy_that_goes_back_to_a_snapshot_is_as_the_copy_before(local):
    wish = {"template": "base", "labels": {"colour": "red"}, "hardened": True}
    made = await local.plane.admin.post("/v1/sandboxes", {**wish, "lifetime": {"timeout_s": 7777}})
    place = Workspace(fork=made["id"])
    task = await local.begin({"say": "one"}, UNTIL_TOUCHED, workspace=place)
    before = await said(local, task, "one")
    first = await box(local, before.sandbox_id)
    await local.plane.services.snapshots.take(local.who, before.sandbox_id, Capture())
    await lose(local, before.sandbox_id)
    second = await box(local, (await in_its_next(local, task, before.sandbox_id)).sandbox_id)
    for name in ("labels", "lifetime", "hardened", "runtime", "owner", "egress", "command_policy"):
        assert getattr(second, name) == getattr(first, name), name
    await local.tasks.cancel(local.who, task.id)
    await local.ended(task)


@pytest.mark.proves("H4")
async def test_where_the_snapshot_is_gone_as_well_the_task_begins_anew(local):
    task = await local.begin({"append": ["log", "1\n"]}, {"say": "one"}, UNTIL_TOUCHED)
    before = await said(local, task, "one")
    kept = await local.plane.services.snapshots.take(local.who, before.sandbox_id, Capture())
    provider = local.plane.services.providers.get(kept.provider)
    await provider.delete_snapshot(SnapshotRef(kept.provider, kept.ref))
    await lose(local, before.sandbox_id)
    now = await in_its_next(local, task, before.sandbox_id)
    await said(local, task, "one", times=2)
    await touch(local, now, "finish")
    ended = await local.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    assert await local.read(ended, "log") == "1\n"
    assert {each.path for each in ended.result.files} == {"log", "finish"}
    assert len(ended.restarts) == 1


@pytest.mark.parametrize("mode", [WorkMode.EXPLORE, WorkMode.VALIDATE])
async def test_one_that_only_looks_is_replaced_also_while_it_is_looked_at(working, tmp_path, mode):
    again = tmp_path / "again"
    large = f"[ -e {again} ] || head -c 80000000 /dev/urandom > large; sync"
    task = await working.begin({"run": large}, {"say": '{"verdict": "approve"}'}, mode=mode)
    before = await working.until(task, lambda now: now.state is S.COMPLETING)
    again.touch()
    await lose(working, before.sandbox_id)
    ended = await working.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    assert [each.sandbox_id for each in ended.losses] == [before.sandbox_id]


async def test_what_its_agent_had_asked_is_withdrawn_with_its_sandbox(working):
    services = working.plane.services
    task = await working.begin({"say": "one"}, UNTIL_TOUCHED)
    before = await said(working, task, "one")
    guard = services.approvals.guards[Kind.AGENT]
    question = Ask(question="tabs or spaces?", options=())
    asked = await services.store.write(
        lambda tx: guard.ask(tx, tx.tasks.get("", task.id), question, once="x")
    )
    await lose(working, before.sandbox_id)
    now = await in_its_next(working, task, before.sandbox_id)
    found = await services.store.read(lambda tx: tx.approvals.get("", asked.id))
    assert found.state is State.EXPIRED
    await touch(working, now, "finish")
    assert (await working.ended(task)).state is S.COMPLETED


async def test_what_was_lost_stays_until_its_task_is_deleted_with_its_sandboxes(working):
    task = await working.begin({"say": "one"}, UNTIL_TOUCHED)
    before = await said(working, task, "one")
    await lose(working, before.sandbox_id)
    now = await in_its_next(working, task, before.sandbox_id)
    await touch(working, now, "finish")
    await working.ended(task)
    assert (await box(working, before.sandbox_id)).state is SandboxState.FAILED
    path = f"/v1/tasks/{task.id}?force=true&with_sandbox=true"
    swept = await working.plane.admin.delete(path)
    assert set(swept["sandboxes"]) == {before.sandbox_id, now.sandbox_id}, swept.body
    assert (await box(working, before.sandbox_id)).state is SandboxState.DELETED


async def test_a_task_waits_for_a_provider_that_allows_no_more_requests_now():
    async with veiled() as (working, provider):
        provider.is_busy = True
        task = await working.begin({"say": "one"})
        waits = await working.until(task, lambda now: "too many requests" in now.detail)
        assert not waits.state.is_final
        provider.is_busy = False
        assert (await working.ended(task)).state is S.COMPLETED


def gone_after(seconds, **more):
    """Settings by which a sandbox is gone after that time without an answer."""
    health = replace(SETTINGS.tasks.health, beat_lasts_s=seconds / 3, **more)
    return replace(SETTINGS, tasks=replace(SETTINGS.tasks, health=health))


# A beat that is late on a busy machine restarts nothing here: only the sandbox is judged.
SOON_GONE = gone_after(1.2, beat_every_s=0.2, restart_after_s=0.0)


@pytest.mark.proves("H2", "H4")
async def test_a_sandbox_whose_guest_refuses_is_started_again_under_its_task():
    async with veiled(SOON_GONE) as (working, provider):
        task = await working.begin({"append": ["log", "1\n"]}, {"say": "one"}, UNTIL_TOUCHED)
        before = await said(working, task, "one")
        provider.silent.add((await box(working, before.sandbox_id)).ref)
        await working.plane.services.inside._guests.forget(before.sandbox_id)
        now = await working.until(task, lambda now: now.conversation.run == 2)
        assert (now.sandbox_id, now.losses) == (before.sandbox_id, ())
        await touch(working, now, "finish")
        ended = await working.ended(task)
        assert ended.state is S.COMPLETED, ended.detail
        assert await working.read(ended, "log") == "1\n"
        assert len(ended.restarts) == 1


@pytest.mark.soak  # every call to a guest that hangs has 30 s
@pytest.mark.timeout(240)
@pytest.mark.proves("H2", "H4")
async def test_a_sandbox_that_does_not_answer_is_started_again_under_its_task():
    opened = []

    async def provider(_place):
        opened.append(await LocalProvider.open(local_config()))
        return opened[0]

    async with disposable(provider=provider, settings=gone_after(3.0)) as plane, at_work(plane):
        working = Working(plane, await operator(plane), "base")
        task = await working.begin({"append": ["log", "1\n"]}, {"say": "one"}, UNTIL_TOUCHED)
        before = await said(working, task, "one")
        ref = (await box(working, before.sandbox_id)).ref
        os.kill(opened[0]._life.records.read(ref).machine.guest.pid, signal.SIGSTOP)
        now = await working.until(task, lambda now: now.conversation.run == 2, 180)
        assert (now.sandbox_id, now.losses) == (before.sandbox_id, ())
        await touch(working, now, "finish")
        ended = await working.ended(task)
        assert ended.state is S.COMPLETED, ended.detail
        assert await working.read(ended, "log") == "1\n"
        assert len(ended.restarts) == 1


@pytest.mark.slow
async def test_a_provider_that_is_away_for_long_costs_no_sandbox():
    away = gone_after(0.7, beat_every_s=0.2, restart_after_s=0.0)
    async with veiled(away) as (working, provider):
        task = await working.begin({"append": ["log", "1\n"]}, {"say": "one"}, UNTIL_TOUCHED)
        before = await said(working, task, "one")
        provider.is_away = True
        await working.plane.services.inside._guests.forget(before.sandbox_id)
        await asyncio.sleep(5 * away.tasks.health.gone_s)
        provider.is_away = False
        assert (await box(working, before.sandbox_id)).state is SandboxState.RUNNING
        await touch(working, before, "finish")
        ended = await working.ended(task)
        assert (ended.state, ended.losses) == (S.COMPLETED, ()), ended.detail
        assert ended.sandbox_id == before.sandbox_id


async def test_a_sandbox_of_somebodys_own_that_is_seen_again_is_left_alone():
    async with veiled() as (working, provider):
        made = await working.plane.admin.post("/v1/sandboxes", {"template": "plain"})
        place = Workspace(sandbox=made["id"])
        task = await working.begin({"say": "one"}, workspace=place)
        await working.ended(task)
        own = await box(working, made["id"])
        provider.hidden.add(own.ref)
        await working.plane.rounds.reconciler.look()
        assert (await box(working, own.id)).state is SandboxState.FAILED
        provider.hidden.clear()
        for _ in range(2):
            await working.plane.rounds.reconciler.look()
            await asyncio.sleep(0.3)
        assert await running(provider) == [own.ref]


async def test_a_copy_made_again_keeps_to_the_policy_that_people_have_set(local):
    made = await local.plane.admin.post("/v1/sandboxes", {"template": "base"})
    place = Workspace(fork=made["id"])
    task = await local.begin({"say": "one"}, UNTIL_TOUCHED, workspace=place)
    before = await said(local, task, "one")
    rules = {"rules": [{"name": "no removing", "verdict": "deny", "command": "rm **"}]}
    path = f"/v1/sandboxes/{before.sandbox_id}/policy"
    assert (await local.plane.admin.call("PUT", path, rules)).status == 200
    lost = await box(local, before.sandbox_id)
    await lose(local, before.sandbox_id)
    now = await in_its_next(local, task, before.sandbox_id)
    assert (await box(local, now.sandbox_id)).command_policy == lost.command_policy
    await local.tasks.cancel(local.who, task.id)
    await local.ended(task)
