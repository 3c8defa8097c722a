"""Tasks that somebody has paused: they stand still, and go on where they were."""

import asyncio
from itertools import pairwise

import pytest

from paddock.domain.budget import Budget
from paddock.domain.errors import Conflict
from paddock.domain.message import MessageState, Mode
from paddock.domain.task import TaskState
from paddock.domain.task_wish import TaskWish, Workspace
from paddock.services.task_plans import Submission

S = TaskState
STILL_S = 1.0


async def talking(working, *steps, **more):
    """One whose agent has said something."""
    task = await working.begin({"clock": 1}, *steps, **more)
    async with asyncio.timeout(60):
        while not await working.said(task):
            await asyncio.sleep(0.02)
    return task


async def stands_still(working, task):
    await working.tasks.pause(working.who, task.id)
    return await working.until(task, lambda now: now.state is S.WAITING)


@pytest.mark.proves("M9")
async def test_an_agent_that_is_paused_does_nothing_and_loses_no_time(working):
    task = await talking(working, {"clock": 2000})
    still = await stands_still(working, task)
    said = len(await working.said(task))
    await asyncio.sleep(STILL_S)
    await working.tasks.resume(working.who, task.id)
    going = await working.until(task, lambda now: now.state is S.RUNNING)
    assert going.deadline - still.deadline >= STILL_S
    async with asyncio.timeout(60):
        while len(await working.said(task)) < said + 3:
            await asyncio.sleep(0.02)
    assert max(b - a for a, b in pairwise(map(float, await working.said(task)))) >= STILL_S
    await working.tasks.cancel(working.who, task.id)
    assert (await working.ended(task)).state is S.CANCELLED


@pytest.mark.proves("M9")
async def test_an_agent_that_was_paused_goes_on_and_hears_what_was_said_meanwhile(working):
    task = await talking(working, {"await": 1}, {"say": "done"})
    still = await stands_still(working, task)
    assert (still.waits_for, still.waits_rule, still.paused_by) == ("", "person", "")
    assert working.who.actor in still.detail
    again = await working.tasks.pause(working.who, task.id)
    assert again == await working.get(task)
    sent = await working.tasks.send(working.who, task.id, "hello", Mode.NOW)
    await working.tasks.resume(working.who, task.id)
    ended = await working.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    assert (await working.tasks.message(working.who, task.id, sent.id)).state is MessageState.SEEN
    kinds = [each.kind for each in await working.events(task, "task.")]
    states = [each for each in kinds if each in ("task.pausing", "task.waiting", "task.resuming")]
    assert states == ["task.pausing", "task.waiting", "task.resuming"]
    entries = await working.plane.services.store.read(lambda tx: tx.audit.after(0, 100_000))
    mine = [each.action for each in entries if each.subject == task.id]
    assert [each for each in mine if "pause" in each or "resume" in each] == [
        "task.pause",
        "task.resume",
    ]


@pytest.mark.proves("M9")
async def test_one_that_has_not_begun_does_not_begin_until_it_is_resumed(working):
    first = await working.begin({"await": 1}, {"say": "first"})
    then = await working.begin({"say": "then"}, after=(first.id,))
    paused = await working.tasks.pause(working.who, then.id)
    assert (paused.state, paused.paused_by) == (S.PENDING, working.who.actor)
    await working.until(first, lambda now: now.state is S.RUNNING)
    await working.tasks.send(working.who, first.id, "go", Mode.NOW)
    assert (await working.ended(first)).state is S.COMPLETED
    other = await working.done({"say": "whose turn came later"})
    assert other.state is S.COMPLETED
    assert (await working.get(then)).state is S.PENDING
    await working.tasks.resume(working.who, then.id)
    assert (await working.ended(then)).state is S.COMPLETED


async def test_any_number_of_paused_ones_are_in_nobodys_way(working):
    first = await working.begin({"await": 1}, {"say": "first"})
    wish = TaskWish("x", "scripted", workspace=Workspace(template="plain"), after=(first.id,))
    many = await working.tasks.create_all(working.who, [Submission(wish)] * 101)
    for each in many:
        await working.tasks.pause(working.who, each.id)
    await working.until(first, lambda now: now.state is S.RUNNING)
    await working.tasks.send(working.who, first.id, "go", Mode.NOW)
    assert (await working.ended(first)).state is S.COMPLETED
    assert (await working.done({"say": "before all of them"})).state is S.COMPLETED
    for each in many:
        assert (await working.tasks.cancel(working.who, each.id)).state is S.CANCELLED


@pytest.mark.proves("M9")
async def test_one_that_is_paused_while_its_sandbox_is_made_stands_still_after_that(working):
    task = await working.begin({"await": 1}, {"say": "x"})
    await working.until(task, lambda now: now.state is not S.PENDING)
    await stands_still(working, task)
    await working.tasks.resume(working.who, task.id)
    await working.tasks.send(working.who, task.id, "go on", Mode.NOW)
    assert (await working.ended(task)).state is S.COMPLETED


@pytest.mark.proves("M9")
async def test_whoever_is_last_to_say_whether_it_stands_still_is_heard(working):
    task = await talking(working, {"clock": 20}, {"await": 1}, {"say": "done"})
    for _ in range(10):
        await working.tasks.pause(working.who, task.id)
        await working.tasks.resume(working.who, task.id)
    await working.tasks.send(working.who, task.id, "end now", Mode.NOW)
    ended = await working.ended(task)
    assert (ended.state, ended.result.message) == (S.COMPLETED, "done")
    for change in (working.tasks.pause, working.tasks.resume):
        with pytest.raises(Conflict, match="is completed"):
            await change(working.who, task.id)


async def test_one_that_is_paused_can_be_cancelled(working):
    begun = await talking(working, {"sleep": 100})
    await stands_still(working, begun)
    waits = await working.begin({"say": "never"}, after=(begun.id,))
    await working.tasks.pause(working.who, waits.id)
    for task in (waits, begun):
        await working.tasks.cancel(working.who, task.id)
        assert (await working.ended(task)).state is S.CANCELLED


async def test_one_that_waits_for_an_answer_stands_still_already(working):
    usage = {"usage": {"input_tokens": 80, "output_tokens": 40}}
    task = await working.begin({"say": "a"}, usage, {"sleep": 100}, budget=Budget(tokens=100))
    await working.until(task, lambda now: now.state is S.WAITING)
    with pytest.raises(Conflict, match="stands still already, and waits for the answer to apr_"):
        await working.tasks.pause(working.who, task.id)
    await working.tasks.cancel(working.who, task.id)
    assert (await working.ended(task)).state is S.CANCELLED
