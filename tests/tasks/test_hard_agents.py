"""Agents that die, flood and cannot be stopped, and what is left of a task all the same."""

import asyncio
import os
import signal
import sys

import pytest

from paddock.domain.approval import State
from paddock.domain.budget import Budget
from paddock.domain.message import MessageState, Mode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskState
from tests.tasks.test_messages import receipt
from tests.tasks.test_own_agents import begun
from tests.tasks.test_replaced import UNTIL_TOUCHED as HELD
from tests.tasks.test_replaced import touch

S = TaskState
USAGE = {"usage": {"input_tokens": 80, "output_tokens": 40}}
DEMANDS = """
import sys
sys.stdin.readline()
for _ in range(3_000):
    print('{"jsonrpc": "2.0", "id": 1, "method": "x"}')
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.mark.proves("M2")
async def test_a_message_that_died_with_the_program_reaches_the_next_one(working):
    task = await working.begin({"say": "a"}, HELD, {"die": "SIGKILL"}, {"say": "b"})
    await working.until(task, lambda now: now.conversation.is_started)
    sent = await working.tasks.send(working.who, task.id, "remember", Mode.TURN)
    await receipt(working, sent, MessageState.DELIVERED)
    await touch(working, await working.get(task), "finish")
    ended = await working.ended(task)
    assert (ended.state, len(ended.restarts)) == (S.COMPLETED, 1)
    found = await working.tasks.message(working.who, task.id, sent.id)
    assert found.state is MessageState.SEEN
    told = [each.data["state"] for each in await working.events(task, "task.message")]
    assert told == ["queued", "delivered", "queued", "delivered", "seen"]


async def test_one_that_complains_without_end_is_heard_to_its_end(working):
    script = "head -c 36000000 /dev/zero | tr '\\0' x >&2; echo done"
    ended = await working.ended(await begun(working, "command", ["sh", "-c", script], "go"))
    assert (ended.state, ended.result.message) == (S.COMPLETED, "done")


async def test_one_that_demands_answers_without_end_is_ended(working):
    task = await begun(working, "acp", [sys.executable, "-c", DEMANDS], "go")
    ended = await working.ended(task)
    assert (ended.state, ended.reason) == (S.FAILED, Reason.EVICTED)
    assert "more than" in ended.detail


async def test_what_nobody_can_answer_any_more_is_not_asked(working):
    services = working.plane.services
    task = await working.begin(USAGE, {"say": "x"}, {"sleep": 60}, budget=Budget(tokens=100))
    task = await working.until(task, lambda now: now.state is S.WAITING)
    await services.sandboxes.delete(working.who, task.sandbox_id, force=True)
    ended = await working.ended(task)
    assert ended.state is S.FAILED
    asked = await services.approvals.get(working.who, task.waits_for)
    assert asked.state is State.EXPIRED


async def test_each_time_a_paused_budget_is_resumed_there_is_as_much_again(working):
    task = await working.begin(
        USAGE,
        {"sleep": 0.5},
        USAGE,
        {"sleep": 0.5},
        {"say": "done"},
        budget=Budget(tokens=100),
        guardian={"budget_gone": "pause"},
    )
    for extensions in (0, 1):
        async with asyncio.timeout(60):
            now = await working.until(
                task,
                lambda one, so_far=extensions: one.extensions == so_far and one.state is S.WAITING,
            )
        assert not now.waits_for
        await working.tasks.resume(working.who, task.id)
    ended = await working.ended(task)
    assert (ended.state, ended.extensions) == (S.COMPLETED, 2)


async def test_one_that_died_while_it_was_paused_waits_for_who_paused_it(working):
    task = await working.begin({"say": "a"}, {"run": "echo $PPID > pid; sleep 1"}, {"sleep": 60})
    await working.until(task, lambda now: now.conversation.is_started)
    async with asyncio.timeout(60):
        while not await working.events(task, "agent.tool_result"):
            await asyncio.sleep(0.02)
    await working.tasks.pause(working.who, task.id)
    still = await working.until(task, lambda now: now.state is S.WAITING)
    os.kill(int(await working.read(still, "pid")), signal.SIGKILL)
    dead = await working.until(task, lambda now: now.conversation.has_ended)
    assert (dead.state, dead.restarts) == (S.WAITING, ())
    await working.tasks.cancel(working.who, task.id)
    assert (await working.ended(task)).state is S.CANCELLED


async def test_one_that_reads_no_more_is_not_spoken_to_without_end(working):
    """Its input is closed, and there is something that it would be told."""
    deaf = "exec 0<&-; sleep 1; echo done"
    task = await begun(working, "command", ["sh", "-c", deaf], "x" * 500_000)
    ended = await working.ended(task)
    assert (ended.state, ended.result.message) == (S.COMPLETED, "done")
