"""Messages that are good for a while only, and when one is likely to be read."""

import asyncio
import time
from itertools import pairwise

import pytest

from paddock.domain.errors import InvalidRequest
from paddock.domain.message import LONGEST_TTL_S, MessageState, Mode
from paddock.domain.task import TaskState
from paddock.domain.task_wish import TaskWish, Workspace
from paddock.services.task_config import TasksConfig
from paddock.services.task_plans import Submission
from paddock.settings import AgentsConfig, Settings
from tests.control_plane import disposable
from tests.tasks.conftest import HEALTH, OWN, Working, at_work, operator
from tests.tasks.test_own_agents import SERVER
from tests.tasks.test_replaced import UNTIL_TOUCHED, touch

pytestmark = pytest.mark.timeout(120)
INBOXED = "tests.tasks.inbox_agent:InboxAgent"
SETTINGS = Settings(agents=AgentsConfig(own=(OWN, INBOXED)), tasks=TasksConfig(health=HEALTH))


@pytest.fixture(scope="module")
async def working(database):
    async with disposable(database=database, settings=SETTINGS) as plane, at_work(plane):
        yield Working(plane, await operator(plane))


async def receipt(working, sent, *states):
    async with asyncio.timeout(30):
        while True:
            found = await working.tasks.message(working.who, sent.task_id, sent.id)
            if found.state in states:
                return found
            await asyncio.sleep(0.05)


async def send(working, task, text, mode=Mode.NOW, **more):
    return await working.tasks.send(working.who, task.id, text, mode, **more)


async def states_of(working, task):
    return [each.data["state"] for each in await working.events(task, "task.message")]


async def kept_for_later(working):
    """A message that the adapter of an agent at work holds back until the turn is over."""
    wish = {"workspace": Workspace(template="plain"), "options": {"command": SERVER}}
    wanted = Submission(TaskWish("wait for me", agent="acp", **wish))
    task = await working.tasks.create(working.who, wanted)
    await working.until(task, lambda now: now.conversation.session == "s1")
    late = await send(working, task, "too late", Mode.TURN, ttl_s=1)
    await working.until(task, lambda now: late.id in now.conversation.told)
    return task, late


@pytest.mark.proves("M2")
async def test_a_message_expires_before_its_task_begins_and_is_never_heard_of_again(working):
    first = await working.begin({"say": "x"}, {"await": 1})
    second = await working.begin({"say": "y"}, after=(first.id,))
    sent = await send(working, second, "too late", ttl_s=0.2)
    assert sent.expires_at == pytest.approx(sent.queued_at + 0.2)
    found = await receipt(working, sent, MessageState.EXPIRED)
    assert "within the 0.2 s" in found.detail
    assert (found.delivered_at, found.seen_at) == (None, None)
    await send(working, first, "go on", ttl_s=60)
    for task in (first, second):
        ended = await working.ended(task)
        assert ended.state is TaskState.COMPLETED, ended.detail
    assert await states_of(working, first) == ["queued", "delivered", "seen"]
    assert await states_of(working, second) == ["queued", "expired"]
    assert await working.said(second) == ["y"]


@pytest.mark.proves("M2")
async def test_what_is_kept_for_the_next_turn_expires_while_the_agent_works(working):
    task, late = await kept_for_later(working)
    await receipt(working, late, MessageState.EXPIRED)
    assert not (await working.get(task)).conversation.told
    await send(working, task, "do this", Mode.INTERRUPT, ttl_s=60)
    ended = await working.ended(task)
    assert (ended.state, ended.result.message) == (TaskState.COMPLETED, "heard do this")
    assert await working.read(ended, "heard.txt") == "do this\n"
    told = await working.tasks.messages(working.who, task.id)
    assert [each.state for each in told] == [MessageState.EXPIRED, MessageState.SEEN]


@pytest.mark.proves("M2")
async def test_what_was_kept_while_nobody_looked_after_the_task_expires(database):
    async with disposable(database=database, settings=SETTINGS) as plane:
        working = Working(plane, await operator(plane))
        async with at_work(plane):
            task, late = await kept_for_later(working)
        await asyncio.sleep(1)
        async with at_work(plane):
            await receipt(working, late, MessageState.EXPIRED)
            await send(working, task, "do this", Mode.INTERRUPT)
            assert (await working.ended(task)).result.message == "heard do this"
        assert await states_of(working, task) == [
            "queued",
            "expired",
            "queued",
            "delivered",
            "seen",
        ]


@pytest.mark.proves("M2")
async def test_what_lies_in_an_inbox_is_taken_out_again_in_time(working):
    task = await working.begin({"say": "x"}, UNTIL_TOUCHED, agent="inboxed")
    await working.until(task, lambda now: now.conversation.judged.did_something)
    late = await send(working, task, "too late", ttl_s=1)
    await working.until(task, lambda now: late.id in now.conversation.inboxed)
    await receipt(working, late, MessageState.EXPIRED)
    found = await working.get(task)
    assert (found.conversation.told, found.conversation.inboxed) == ((), ())
    await touch(working, found, "finish")
    ended = await working.ended(task)
    assert ended.state is TaskState.COMPLETED, ended.detail
    assert await states_of(working, task) == ["queued", "expired"]


async def test_a_message_that_is_put_back_expires_instead_of_being_read_late(working):
    steps = [{"say": "x"}, UNTIL_TOUCHED, {"die": "SIGKILL"}, {"say": "again"}]
    task = await working.begin(*steps)
    await working.until(task, lambda now: now.conversation.judged.did_something)
    late = await send(working, task, "too late", Mode.TURN, ttl_s=1)
    await receipt(working, late, MessageState.DELIVERED)
    await asyncio.sleep(max(0.0, late.expires_at - time.time()))
    await touch(working, await working.get(task), "finish")
    ended = await working.ended(task)
    assert ended.state is TaskState.COMPLETED, ended.detail
    assert await states_of(working, task) == ["queued", "delivered", "queued", "expired"]


async def test_how_long_it_is_good_for_has_limits(working):
    task = await working.begin({"await": 1})
    for ttl_s in (0, -1, LONGEST_TTL_S + 1, float("nan")):
        with pytest.raises(InvalidRequest, match="good for"):
            await send(working, task, "x", ttl_s=ttl_s)
    await send(working, task, "x", ttl_s=LONGEST_TTL_S)
    await working.ended(task)


@pytest.mark.proves("M5")
async def test_a_receipt_says_when_the_agent_is_likely_to_read(working):
    waits = [{"run": f"sleep 0.3; : {number}"} for number in range(30)]
    task = await working.begin({"say": "x"}, *waits)
    early = await send(working, task, "early")
    paced = await working.until(task, lambda now: len(now.conversation.boundaries) >= 4)
    longest_s = max(b - a for a, b in pairwise(paced.conversation.boundaries))
    sent = await send(working, task, "steady")
    at_once = await send(working, task, "stop that", Mode.INTERRUPT)
    some_day = await send(working, task, "then", Mode.TURN)
    assert (early.expected_at, some_day.expected_at) == (None, None)
    assert sent.queued_at <= sent.expected_at < sent.queued_at + 3 + longest_s
    assert at_once.expected_at == at_once.queued_at
    seen = await receipt(working, sent, MessageState.SEEN)
    assert seen.expected_at == sent.expected_at
    await working.tasks.pause(working.who, task.id)
    await working.until(task, lambda now: now.state is TaskState.WAITING)
    assert (await send(working, task, "paused")).expected_at is None
    await working.tasks.cancel(working.who, task.id)
    await working.ended(task)
