"""Agents that write very much: what fits is kept in order, what is cut is said, and they end."""

import pytest

from paddock.domain.reason import Reason
from paddock.domain.task import TaskState
from paddock.interfaces.client import AsyncTask, Server

pytestmark = pytest.mark.timeout(120)
LONG = 9 << 20


def program(script):
    return {"agent": "command", "options": {"command": ["sh", "-c", script]}}


async def output(working, task):
    place, pieces = (0, -1), []
    while found := await working.tasks.output(working.who, task.id, place, 16):
        pieces += [piece.data for piece in found]
        place = (found[-1].run, found[-1].offset)
    return b"".join(pieces)


@pytest.mark.slow
async def test_a_task_of_100_000_lines_keeps_its_order_and_says_what_was_cut(working):
    task = await working.done(**program("seq 100000"))
    assert task.state is TaskState.COMPLETED, task.detail
    lines = [str(number) for number in range(1, 100_001)]
    assert (await output(working, task)).decode().splitlines() == lines
    assert await working.said(task) == lines[:20_000]
    notes = [each.data["text"] for each in await working.events(task, "agent.other")]
    assert notes == [
        "limit of 20000 events reached: later ones are only in the agent's output",
        "80000 of its 100000 events were left out",
    ]
    assert task.result.message == "100000"


async def test_a_line_of_9_mib_is_left_out_and_that_is_told(working):
    script = f"echo one; head -c {LONG} /dev/zero | tr '\\0' x; echo; echo two"
    task = await working.done(**program(script))
    assert task.state is TaskState.COMPLETED, task.detail
    assert await working.said(task) == ["one", "two"]
    (error,) = await working.events(task, "agent.error")
    assert error.data["message"] == "line 2 of its output is longer than 8 MiB and was left out"
    assert len(await output(working, task)) == LONG + len("one\n\ntwo\n")


@pytest.mark.slow
async def test_an_agent_that_writes_without_end_ends_soon_after_its_deadline(working):
    """Its log holds 32 MiB that nobody has read yet: 16 million lines."""
    task = await working.done(**program("yes"), timeout_s=3.0)
    assert (task.state, task.reason) == (TaskState.FAILED, Reason.DEADLINE)
    assert task.ended_at - task.deadline < 30
    notes = [each.data["text"] for each in await working.events(task, "agent.other")]
    assert any("were not read, because the agent was stopped" in each for each in notes)


@pytest.mark.slow
async def test_output_says_that_it_is_not_all_that_the_agent_wrote(working):
    task = await working.done(**program("head -c 34000000 /dev/zero | tr '\\0' x; echo; echo two"))
    assert task.state is TaskState.COMPLETED, task.detail
    notes = [each.data["text"] for each in await working.events(task, "agent.other")]
    assert notes == ["output limit reached: the first 32 MiB of 34000005 bytes are kept"]
    told: list[bool] = []
    plane = working.plane
    server = Server(plane.url, plane.admin.token)
    async with await AsyncTask.connect(task.id, server=server) as known:
        size = sum([len(piece) async for piece in known.output(lambda: told.append(True))])
    assert (told, size) == ([True], 32 << 20)
