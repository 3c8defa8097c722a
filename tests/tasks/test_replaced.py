"""A sandbox that is lost under its task: another takes its place, and the task goes on."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from paddock.domain.conversation import Stage
from paddock.domain.message import MessageState, Mode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskState
from paddock.domain.task_wish import Check, GivenFile, Review, TaskWish, Workspace
from paddock.ports.provider import Ref
from paddock.services.system import system
from paddock.services.taking import Capture
from paddock.services.task_plans import Submission
from paddock.settings import AgentsConfig
from paddock.testing.agent import prompt_of
from tests.control_plane import disposable
from tests.tasks.conftest import OWN, SETTINGS, Working, at_work, command, on_local, operator

S = TaskState


GONE = (Reason.PROVIDER_LOST, Reason.CRASHED)
"""It depends on who looks first, and when."""


@pytest.fixture(scope="module")
async def local():
    async with on_local(SETTINGS) as working:
        yield working


@pytest.fixture(scope="module")
async def reviewed():
    owns = (OWN, "paddock.testing.agent:ScriptedReviewer")
    settings = replace(SETTINGS, agents=AgentsConfig(own=owns))
    async with disposable(settings=settings) as plane, at_work(plane):
        yield Working(plane, await operator(plane))


@asynccontextmanager
async def set_to(**tasks):
    settings = replace(SETTINGS, tasks=replace(SETTINGS.tasks, **tasks))
    async with disposable(settings=settings) as plane, at_work(plane):
        yield Working(plane, await operator(plane))


async def said(working, task, text, times=1):
    async with asyncio.timeout(60):
        while (await working.said(task)).count(text) < times:
            await asyncio.sleep(0.02)
    return await working.get(task)


async def lose(working, sandbox_id):
    """Its machine is gone, and nobody here did it."""
    services = working.plane.services
    record = await services.store.read(lambda tx: tx.sandboxes.get("", sandbox_id))
    await services.providers.get(record.provider).destroy(Ref(record.provider, record.ref))
    await working.plane.rounds.reconciler.look()


async def touch(working, task, name):
    path = f"{task.directory}/{name}"
    await working.plane.services.commands.run(working.who, task.sandbox_id, command("touch", path))


async def in_its_next(working, task, lost):
    return await working.until(
        task, lambda now: now.sandbox_id not in ("", lost) and now.state is S.RUNNING
    )


async def lost_twice(working, **more):
    """A task whose second sandbox was lost as well, as it was in that."""
    task = await working.begin({"say": "one"}, {"sleep": 600}, **more)
    first = await said(working, task, "one")
    await lose(working, first.sandbox_id)
    second = await in_its_next(working, task, first.sandbox_id)
    await said(working, task, "one", times=2)
    await lose(working, second.sandbox_id)
    return second


APPROVE = json.dumps({"verdict": "approve", "findings": []})
UNTIL_TOUCHED = {"run": "until [ -e finish ]; do sleep 0.05; done"}


@pytest.mark.proves("H4")
async def test_a_task_whose_sandbox_is_lost_begins_again_in_another(working):
    given = (GivenFile("notes", b"given\n"),)
    task = await working.begin(
        {"append": ["log", "1\n"]}, {"say": "one"}, UNTIL_TOUCHED, {"say": "two"}, files=given
    )
    before = await said(working, task, "one")
    await lose(working, before.sandbox_id)
    now = await in_its_next(working, task, before.sandbox_id)
    await said(working, task, "one", times=2)
    await touch(working, now, "finish")
    ended = await working.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    assert ended.sandbox_id != before.sandbox_id
    assert await working.read(ended, "log") == "1\n"
    assert await working.read(ended, "notes") == "given\n"
    assert {each.path for each in ended.result.files} == {"log", "finish"}
    (loss,) = ended.losses
    assert (loss.sandbox_id, loss.snapshot_id) == (before.sandbox_id, "")
    assert len(ended.restarts) == 1
    (told,) = await working.events(task, "task.restarted")
    assert told.data["lost"] == before.sandbox_id
    assert told.data["reason"] in GONE
    states = [each.kind for each in await working.events(task, "task.")]
    assert [each for each in states if each in ("task.creating", "task.running")] == [
        "task.creating",
        "task.running",
    ] * 2
    sandboxes = await working.plane.admin.get(f"/v1/sandboxes/{before.sandbox_id}")
    assert sandboxes["state"] == "failed"  # left for who wants to look


@pytest.mark.proves("H4")
async def test_where_there_is_a_snapshot_the_agent_goes_on_from_it_with_its_session(local):
    task = await local.begin(
        {"append": ["log", "1\n"]},
        {"say": "one"},
        {"await": 1},
        {"append": ["log", "2\n"]},
        {"say": "two"},
        {"run": "until [ -e finish ]; do sleep 0.05; done"},
        {"append": ["log", "3\n"]},
        {"echo": True},
    )
    before = await said(local, task, "one")
    snapshot = await local.plane.services.snapshots.take(
        local.who, before.sandbox_id, Capture(name="kept")
    )
    sent = await local.tasks.send(local.who, task.id, "mind the gap", Mode.NOW)
    await said(local, task, "two")
    await lose(local, before.sandbox_id)
    now = await in_its_next(local, task, before.sandbox_id)
    # It waits for a message once more, since what it had read is later than the snapshot.
    await local.tasks.send(local.who, task.id, "go on", Mode.NOW)
    await said(local, task, "two", times=2)
    await touch(local, now, "finish")
    ended = await local.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    assert await local.read(ended, "log") == "1\n2\n3\n"
    said_all = await local.said(task)
    assert said_all.count("one") == 1
    assert "Files are as they were at" in said_all[-1]
    assert "mind the gap" in said_all[-1]
    assert ended.losses[0].snapshot_id == snapshot.id
    assert ended.checkpoint == before.checkpoint
    assert {each.path for each in ended.result.files} == {"log", "finish"}
    receipt = await local.tasks.message(local.who, task.id, sent.id)
    assert receipt.state is MessageState.SEEN


@pytest.mark.proves("H4")
async def test_an_agent_whose_session_is_not_in_the_snapshot_begins_without_it(local):
    task = await local.begin({"append": ["log", "1\n"]}, {"say": "one"}, UNTIL_TOUCHED)
    before = await said(local, task, "one")
    await local.plane.services.commands.run(
        local.who, before.sandbox_id, command("sh", "-c", "rm -rf ~/.scripted")
    )
    await local.plane.services.snapshots.take(local.who, before.sandbox_id, Capture())
    await lose(local, before.sandbox_id)
    now = await in_its_next(local, task, before.sandbox_id)
    await said(local, task, "one", times=2)
    await touch(local, now, "finish")
    ended = await local.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    assert await local.read(ended, "log") == "1\n1\n"
    assert len(ended.restarts) == 1


async def test_what_people_said_is_said_again_to_one_that_begins_anew(working):
    task = await working.begin({"await": 1}, {"say": "one"}, UNTIL_TOUCHED, {"echo": True})
    await working.until(task, lambda now: now.state is S.RUNNING)
    await working.tasks.send(working.who, task.id, "use tabs", Mode.NOW)
    before = await said(working, task, "one")
    await lose(working, before.sandbox_id)
    now = await in_its_next(working, task, before.sandbox_id)
    await working.tasks.send(working.who, task.id, "and be quick", Mode.NOW)
    await said(working, task, "one", times=2)
    await touch(working, now, "finish")
    ended = await working.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    last = (await working.said(task))[-1]
    assert "use tabs" in last
    assert "may have been done already" in last


async def test_one_that_somebody_deleted_is_not_replaced(working):
    task = await working.begin({"say": "one"}, {"sleep": 600})
    before = await said(working, task, "one")
    await working.plane.services.sandboxes.delete(working.who, before.sandbox_id, force=True)
    ended = await working.ended(task)
    assert (ended.state, ended.losses) == (S.FAILED, ())
    assert "which somebody wanted" in ended.detail


async def test_one_that_was_not_made_for_the_task_is_not_replaced(working):
    made = await working.plane.admin.post("/v1/sandboxes", {"template": "plain"})
    place = Workspace(sandbox=made["id"])
    task = await working.begin({"say": "one"}, {"sleep": 600}, workspace=place)
    await said(working, task, "one")
    await lose(working, made["id"])
    ended = await working.ended(task)
    assert ended.state is S.FAILED
    assert ended.reason in GONE
    assert "was not made for the task" in ended.detail
    assert ended.losses == ()


async def test_one_that_was_set_aside_is_not_replaced(local):
    task = await local.begin({"say": "one"}, {"sleep": 600})
    before = await said(local, task, "one")
    await local.plane.services.care.quarantines.set(
        system(before.team_id, "test"), before.sandbox_id, "it looks odd"
    )
    await lose(local, before.sandbox_id)
    ended = await local.ended(task)
    assert (ended.state, ended.losses) == (S.FAILED, ())
    assert "it looks odd" in ended.detail


@pytest.mark.proves("H4")
async def test_after_so_many_restarts_within_an_hour_nothing_takes_its_place():
    health = replace(SETTINGS.tasks.health, restarts_per_hour=1)
    async with set_to(health=health) as working:
        task = await lost_twice(working)
        ended = await working.ended(task)
        assert ended.state is S.FAILED
        assert ended.reason in GONE
        assert "1 restart within an hour" in ended.detail
        assert len(ended.losses) == 1


@pytest.mark.proves("H4")
async def test_it_rests_before_another_takes_its_place_and_can_be_cancelled_meanwhile():
    health = replace(SETTINGS.tasks.health, restart_cooldown_s=600.0)
    async with set_to(health=health) as working:
        task = now = await lost_twice(working)
        await asyncio.sleep(0.5)
        assert (await working.get(task)).sandbox_id == now.sandbox_id
        await working.tasks.cancel(working.who, task.id)
        ended = await working.ended(task)
        assert (ended.state, ended.reason) == (S.CANCELLED, Reason.CANCELLED)


async def test_where_that_is_turned_off_the_task_fails_and_says_so():
    async with set_to(replace_lost=False) as working:
        task = await working.begin({"say": "one"}, {"sleep": 600})
        before = await said(working, task, "one")
        await lose(working, before.sandbox_id)
        ended = await working.ended(task)
        assert ended.state is S.FAILED
        assert ended.reason in GONE
        assert "`tasks.replace_lost` is off" in ended.detail


async def test_one_that_was_paused_stays_so_in_its_next_sandbox(working):
    task = await working.begin({"say": "one"}, UNTIL_TOUCHED, {"say": "two"})
    before = await said(working, task, "one")
    await working.tasks.pause(working.who, task.id)
    await working.until(task, lambda now: now.state is S.WAITING)
    await lose(working, before.sandbox_id)
    still = await working.until(
        task,
        lambda now: now.sandbox_id not in ("", before.sandbox_id) and now.state is S.WAITING,
    )
    assert working.who.actor in still.detail
    assert (await working.said(task)).count("one") == 1
    await working.tasks.resume(working.who, task.id)
    await said(working, task, "one", times=2)
    await touch(working, still, "finish")
    assert (await working.ended(task)).state is S.COMPLETED


async def test_one_lost_while_it_is_checked_has_the_work_done_again(working):
    once = "[ -e /tmp/$PPID ] || until [ -e checked ]; do sleep 0.05; done"
    task = await working.begin(
        {"append": ["log", "1\n"]}, {"say": "one"}, checks=(Check("slow", ("sh", "-c", once)),)
    )
    before = await working.until(task, lambda now: now.state is S.COMPLETING)
    await lose(working, before.sandbox_id)
    now = await in_its_next(working, task, before.sandbox_id)
    await touch(working, now, "checked")
    ended = await working.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    assert await working.read(ended, "log") == "1\n"
    assert [each.state for each in ended.result.checks] == ["passed"]


async def test_what_a_lost_task_goes_on_with_is_seen_by_http(working):
    task = await working.begin({"say": "one"}, UNTIL_TOUCHED)
    before = await said(working, task, "one")
    await lose(working, before.sandbox_id)
    now = await in_its_next(working, task, before.sandbox_id)
    await touch(working, now, "finish")
    await working.ended(task)
    shown = await working.plane.admin.get(f"/v1/tasks/{task.id}")
    (loss,) = shown["losses"]
    assert loss["sandbox_id"] == before.sandbox_id
    assert (loss["snapshot_id"], loss["as_of"]) == (None, None)


async def test_a_prompt_with_the_name_of_its_sandbox_has_that_of_the_next(working):
    prompt = prompt_of({"say": "one"}, UNTIL_TOUCHED, {"echo": True})
    place = Workspace(template="plain")
    wish = TaskWish(f"{prompt} in {{{{sandbox_id}}}}", "scripted", workspace=place, variables={})
    task = await working.tasks.create(working.who, Submission(wish))
    before = await said(working, task, "one")
    await lose(working, before.sandbox_id)
    now = await in_its_next(working, task, before.sandbox_id)
    await touch(working, now, "finish")
    ended = await working.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    last = (await working.said(task))[-1]
    assert now.sandbox_id in last
    assert before.sandbox_id not in last


async def test_one_lost_while_it_is_reviewed_is_done_and_reviewed_again(reviewed):
    reviews = [[{"run": "until [ -e go ]; do sleep 0.05; done"}, {"say": APPROVE}]] * 2
    task = await reviewed.begin(
        {"append": ["log", "1\n"]},
        {"say": "one"},
        review=Review("scripted_reviewer", min_lines=0),
        env={"SCRIPTED_REVIEW": json.dumps(reviews)},
    )
    before = await reviewed.until(task, lambda now: now.conversation.stage is Stage.REVIEW)
    await lose(reviewed, before.sandbox_id)
    now = await in_its_next(reviewed, task, before.sandbox_id)
    await reviewed.until(task, lambda now: now.conversation.stage is Stage.REVIEW)
    await touch(reviewed, now, "go")
    ended = await reviewed.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    assert (await reviewed.said(task)).count("one") == 2
    assert [each.opinion for each in ended.reviews] == ["approve"]


async def test_an_attempt_whose_copy_is_lost_gets_another_copy(local):
    made = await local.plane.admin.post("/v1/sandboxes", {"template": "base"})
    run = local.plane.services.commands.run
    await run(
        local.who,
        made["id"],
        command("sh", "-c", "mkdir -p ~/workspace; cd ~/workspace; echo a > base"),
    )
    task = await local.begin(
        {"run": "cat base"}, {"say": "one"}, UNTIL_TOUCHED, workspace=Workspace(fork=made["id"])
    )
    before = await said(local, task, "one")
    await lose(local, before.sandbox_id)
    now = await in_its_next(local, task, before.sandbox_id)
    await touch(local, now, "finish")
    ended = await local.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    assert await local.read(ended, "base") == "a\n"
    assert {each.path for each in ended.result.files} == {"finish"}


async def test_one_that_is_cancelled_before_it_begins_again_leaves_no_sandbox(working):
    task = await working.begin({"say": "one"}, {"sleep": 600})
    before = await said(working, task, "one")
    await working.tasks.pause(working.who, task.id)
    await working.until(task, lambda now: now.state is S.WAITING)
    await lose(working, before.sandbox_id)
    await working.until(
        task, lambda now: now.sandbox_id not in ("", before.sandbox_id) and now.state is S.WAITING
    )
    await working.tasks.cancel(working.who, task.id)
    ended = await working.ended(task)
    assert ended.state is S.CANCELLED
    shown = await working.plane.admin.get(f"/v1/sandboxes/{ended.sandbox_id}")
    assert shown["state"] == "deleted", shown.body


async def test_lost_twice_it_goes_back_to_the_same_snapshot(local):
    task = await local.begin({"append": ["log", "1\n"]}, {"say": "one"}, UNTIL_TOUCHED)
    before = await said(local, task, "one")
    kept = await local.plane.services.snapshots.take(local.who, before.sandbox_id, Capture())
    await lose(local, before.sandbox_id)
    second = await in_its_next(local, task, before.sandbox_id)
    async with asyncio.timeout(60):  # its agent is at work there, with its session
        while len(await local.events(task, "agent.started")) < 2:
            await asyncio.sleep(0.02)
    await lose(local, second.sandbox_id)
    third = await local.until(
        task,
        lambda now: (
            now.sandbox_id not in ("", before.sandbox_id, second.sandbox_id)
            and now.state is S.RUNNING
        ),
    )
    await touch(local, third, "finish")
    ended = await local.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    assert await local.read(ended, "log") == "1\n"
    assert [each.snapshot_id for each in ended.losses] == [kept.id, kept.id]
    assert (await local.said(task)).count("one") == 1


async def test_what_was_lost_before_it_was_taken_out_is_done_again(working, tmp_path):
    """Its agent was done and its checks had passed, but nobody has what it made."""
    again = tmp_path / "again"
    large = f"[ -e {again} ] || head -c 80000000 /dev/urandom > large"
    task = await working.begin(
        {"run": large}, {"append": ["log", "1\n"]}, checks=(Check("is there", ("cat", "log")),)
    )
    async with asyncio.timeout(60):
        while not await working.events(task, "task.round"):
            await asyncio.sleep(0.02)
    again.touch()
    before = await working.get(task)
    assert (before.state, before.result) == (S.COMPLETING, None)
    await lose(working, before.sandbox_id)
    ended = await working.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    assert [each.sandbox_id for each in ended.losses] == [before.sandbox_id]
    assert {each.path for each in ended.result.files} == {"log"}
