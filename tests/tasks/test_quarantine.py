"""Sandboxes that are set aside: by somebody, and because what happens in them is odd."""

import asyncio
import json

import pytest

from paddock.domain.errors import Conflict, Forbidden, InvalidRequest
from paddock.domain.message import Mode
from paddock.domain.quarantine import OddnessConfig
from paddock.domain.task import TaskState
from paddock.services.commands import Command
from paddock.services.files import Place
from paddock.services.taking import Capture
from paddock.services.task_cleaning import Terms
from paddock.services.task_config import TasksConfig
from paddock.services.verbs import ref_of
from paddock.settings import AgentsConfig, Settings
from tests.tasks.conftest import HEALTH, OWN, command, on_local

pytestmark = pytest.mark.timeout(180)
S = TaskState
ODD = OddnessConfig(threshold=0.3, readings=3, every_s=0.2, quarantine=True)
DANGERS = [{"run": "git push --force origin main"}, {"run": "git push -f origin master"}]


@pytest.fixture(scope="module")
async def working():
    tasks = TasksConfig(health=HEALTH, odd=ODD)
    async with on_local(Settings(agents=AgentsConfig(own=(OWN,)), tasks=tasks)) as made:
        yield made


@pytest.fixture
async def care(working):
    return working.plane.services.care.quarantines


async def member(working):
    token = (await working.plane.member(role="member")).token
    return await working.plane.services.access.authenticate(token)


async def audited(working, subject, action):
    store = working.plane.services.store
    entries = await store.read(lambda tx: tx.audit.after(0, 100_000))
    return [each for each in entries if each.subject == subject and each.action == action]


@pytest.mark.proves("H8")
async def test_odd_behaviour_adds_up_until_the_sandbox_is_set_aside(working, care):
    steps = [{"say": "x"}, *DANGERS, {"await": 1}, {"append": ["log", "after\n"]}, {"say": "done"}]
    task = await working.begin(*steps, guardian={"danger": "note"})
    waits = await working.until(task, lambda now: now.state is S.WAITING)
    assert "its sandbox was set aside: 2 dangerous commands" in waits.detail
    assert (waits.waits_rule, waits.waits_for) == ("quarantine", "")
    assert len(waits.oddness) == 3
    assert min(waits.oddness) >= ODD.threshold
    sandboxes = working.plane.services.sandboxes
    async with asyncio.timeout(60):
        while not (case := await care.get(working.who, waits.sandbox_id)).snapshot:
            await asyncio.sleep(0.05)
    box = await sandboxes.get(working.who, waits.sandbox_id)
    assert (box.state, box.quarantine.by) == ("paused", "paddock/guardian")
    assert (case.tasks, case.missing, case.before) == ((task.id,), (), "running")
    assert any("python" in each["command"] for each in case.diagnosis["processes"])
    assert "guardian.noted" in {each["kind"] for each in case.events}
    assert [each.sandbox_id for each in await care.list(working.who)] == [box.id]
    (entry,) = await audited(working, box.id, "sandbox.quarantine")
    assert entry.detail["before"] == {"state": "running", "quarantined": False}
    assert entry.detail["after"]["quarantined"] is True
    opened = await care.clear(working.who, box.id)
    assert (opened.state, opened.quarantine) == ("running", None)
    assert (await working.get(task)).state is S.WAITING
    assert await working.read(waits, "log") == ""
    await working.tasks.resume(working.who, task.id)
    await working.until(task, lambda now: now.state is S.RUNNING)
    await working.tasks.send(working.who, task.id, "go on", Mode.NOW)
    ended = await working.ended(task, 120)
    assert ended.state is S.COMPLETED, ended.detail
    (entry,) = await audited(working, box.id, "sandbox.clear")
    assert entry.detail["after"] == {"quarantined": False, "smoke_test": "passed"}
    await working.plane.services.snapshots.delete(working.who, case.snapshot)


TICKS = {"run": "while :; do echo tick >> ticks; sleep 0.02; done"}


async def ticking(working):
    """A task whose agent works, and shows it."""
    task = await working.begin({"say": "x"}, TICKS)
    await working.until(task, lambda now: now.conversation.judged.did_something)
    async with asyncio.timeout(30):
        while not await ticks(working, found := await working.get(task)):
            await asyncio.sleep(0.1)
    return found


async def ticks(working, task):
    look = command("sh", "-c", f"cat {task.directory}/ticks 2>/dev/null | wc -l")
    ran = await working.plane.services.commands.run(working.who, task.sandbox_id, look)
    return int(ran.stdout)


async def stays_still(working, task):
    before = await ticks(working, task)
    await asyncio.sleep(0.5)
    return await ticks(working, task) == before


@pytest.mark.proves("T8")
@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_whose_task_is_cancelled_in_quarantine_is_ended_when_that_is_opened(
    working, care, is_forgotten
):
    services, task = working.plane.services, await ticking(working)
    box = task.sandbox_id
    await care.set(working.who, box, "it looks wrong")
    await working.until(task, lambda now: now.state is S.WAITING)
    assert (await services.sandboxes.get(working.who, box)).state == "paused"
    await working.tasks.cancel(working.who, task.id)
    ended = await working.ended(task, 30)
    assert ended.state is S.CANCELLED, ended.detail
    assert "set aside" in ended.detail
    assert ended.conversation.is_running
    if is_forgotten:
        await services.care.cleaning.delete(working.who, task.id, Terms(force=True))
    opened = await care.clear(working.who, box)
    assert (opened.state, opened.quarantine) == ("running", None)
    ran = await services.commands.run(working.who, box, command("pgrep", "-f", "echo tick"))
    assert ran.stdout == b""
    assert await stays_still(working, ended)
    if not is_forgotten:
        assert not (await working.get(task)).conversation.is_running
    await services.sandboxes.delete(working.who, box, force=True)


async def test_an_agent_is_not_let_go_on_by_the_cancellation_of_its_task(working, care):
    services, task = working.plane.services, await ticking(working)
    box = task.sandbox_id
    await care.set(working.who, box, "it looks wrong")
    await services.sandboxes.resume(working.who, box)
    assert await stays_still(working, task)
    await working.tasks.cancel(working.who, task.id)
    assert (await working.ended(task, 30)).state is S.CANCELLED
    assert await stays_still(working, task)
    await care.clear(working.who, box)
    assert await stays_still(working, task)
    await services.sandboxes.delete(working.who, box, force=True)


async def test_whose_task_is_cancelled_while_its_sandbox_is_paused_is_ended_when_it_wakes(working):
    services, task = working.plane.services, await ticking(working)
    box = task.sandbox_id
    await services.sandboxes.pause(working.who, box)
    await working.tasks.cancel(working.who, task.id)
    assert (await working.ended(task, 120)).state is S.CANCELLED
    await services.sandboxes.resume(working.who, box)
    assert await stays_still(working, task)
    await services.sandboxes.delete(working.who, box, force=True)


@pytest.mark.proves("H8")
async def test_nobody_but_an_admin_goes_into_one_that_was_set_aside(working, care):
    services = working.plane.services
    task = await working.done({"say": "x"})
    box, somebody = task.sandbox_id, await member(working)
    with pytest.raises(InvalidRequest):
        await care.set(somebody, box, "  ")
    case = await care.set(somebody, box, "it looks wrong")
    assert (await care.set(working.who, box, "another reason")).why == "it looks wrong"
    for attempt in (
        lambda who: services.commands.run(who, box, command("true")),
        lambda who: services.sandboxes.resume(who, box),
        lambda who: services.snapshots.take(who, box, Capture()),
    ):
        with pytest.raises(Forbidden, match="set aside"):
            await attempt(somebody)
    with pytest.raises(Forbidden, match="only an admin"):
        await care.clear(somebody, box)
    with pytest.raises(Conflict, match="it was set aside"):
        await services.sandboxes.delete(working.who, box)
    for inside in (
        lambda: services.commands.run(working.who, box, command("true")),
        lambda: services.files.make_directory(working.who, Place(box, "/tmp/x")),
    ):
        with pytest.raises(
            Conflict, match=r"set aside by \S+: it looks wrong; it is paused"
        ) as told:
            await inside()
        assert "paddock quarantine clear" in told.value.remediation
        assert "resume it first" not in told.value.remediation
    await services.sandboxes.resume(working.who, box)
    ran = await services.commands.run(working.who, box, command("echo", "looked"))
    assert ran.stdout == b"looked\n"
    with pytest.raises(Forbidden, match="set aside"):
        await services.commands.run(somebody, box, command("true"))
    await services.commands.run(working.who, box, Command(("chmod", "000", "/tmp"), user="root"))
    with pytest.raises(Conflict, match="did not pass the smoke test"):
        await care.clear(working.who, box)
    still = await services.sandboxes.get(working.who, box)
    assert (still.state, bool(still.quarantine)) == ("paused", True)
    assert json.dumps(case.events)
    await services.sandboxes.delete(working.who, box, force=True)


async def test_an_agent_whose_task_is_over_is_ended_also_when_others_woke_its_sandbox(working):
    services, task = working.plane.services, await ticking(working)
    box = await services.sandboxes.pause(working.who, task.sandbox_id)
    await working.tasks.cancel(working.who, task.id)
    assert (await working.ended(task, 120)).state is S.CANCELLED
    await services.providers.get(box.provider).resume(ref_of(box))
    await working.plane.rounds.reconciler.look()
    async with asyncio.timeout(30):
        while (await working.get(task)).conversation.is_running:
            await asyncio.sleep(0.05)
    assert await stays_still(working, task)
    await services.sandboxes.delete(working.who, box.id, force=True)
