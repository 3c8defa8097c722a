"""Questions and pauses outlive the server, and need no network."""

import asyncio
from contextlib import suppress

import aiohttp
import pytest

from paddock.guest_client import Guest
from paddock.testing.agent import prompt_of
from tests.tasks.conftest import OWN
from tests.wiring_server import at_provider, server

pytestmark = pytest.mark.timeout(300)
REACH = "import socket; socket.create_connection(('1.1.1.1', 53), 1)"


class World:
    """A server that may be dead at any moment."""

    def __init__(self, made):
        self.made = made

    async def call(self, method, path, body=None):
        async with asyncio.timeout(120):
            while True:
                with suppress(aiohttp.ClientError, TimeoutError, OSError):
                    answer = await self.made.admin.call(method, path, body, within_s=20)
                    if answer.status < 500:
                        assert answer.status < 300, answer.body
                        return answer.body
                await asyncio.sleep(0.1)

    async def begin(self, *steps, **more):
        wish = {"prompt": prompt_of(*steps), "agent": "scripted", "egress": {"mode": "none"}}
        return await self.call("POST", "/v1/tasks", {**wish, **more})

    async def until(self, task, holds):
        async with asyncio.timeout(120):
            while not holds(now := await self.call("GET", f"/v1/tasks/{task['id']}")):
                await asyncio.sleep(0.05)
        return now

    async def events(self, task):
        path = f"/v1/tasks/{task['id']}/events?format=ndjson&follow=false"
        return [each async for each in self.made.admin.lines("GET", path)]

    async def at_work(self, task):
        """Until its agent has begun a step; the task as it is then."""
        async with asyncio.timeout(120):
            while not any(each["kind"] == "agent.tool_call" for each in await self.events(task)):
                await asyncio.sleep(0.05)
        return await self.call("GET", f"/v1/tasks/{task['id']}")

    async def die(self):
        await self.made.kill()
        await self.made.start()


@pytest.fixture(scope="module")
async def world():
    async with server(agents__own=OWN) as made:
        yield World(made)


@pytest.mark.proves("M10")
async def test_a_question_without_a_network_is_answered_after_the_server_has_died(world):
    task = await world.begin(
        {"run": f'python3 -c "{REACH}" && echo reached'},
        {"desk": ["/ask", {"question": "Go on?"}]},
        {"say": "I wait."},
    )
    waits = await world.until(task, lambda now: now["waits_for"] or now["ended_at"])
    assert waits["state"] == "waiting", waits["detail"]
    await world.die()
    again = await world.call("GET", f"/v1/tasks/{task['id']}")
    assert (again["state"], again["waits_for"]) == ("waiting", waits["waits_for"])
    said = {"answer": "allowed_once", "note": "yes"}
    await world.call("POST", f"/v1/approvals/{waits['waits_for']}/answer", said)
    ended = await world.until(task, lambda now: now["ended_at"])
    assert (ended["state"], ended["runs"]) == ("completed", 2)
    (sent,) = (await world.call("GET", f"/v1/tasks/{task['id']}/messages"))["items"]
    assert (sent["text"], sent["state"]) == ("You asked: Go on?\nThe answer: yes", "seen")
    told = await world.events(task)
    (ran,) = [e for e in told if e["kind"] == "agent.tool_result" and "python3" in str(e["data"])]
    assert ran["data"]["ok"] is False, "this sandbox should have no network"


@pytest.mark.proves("M10")
async def test_what_an_agent_asks_while_the_server_is_dead_is_asked_when_it_is_back(world):
    task = await world.begin(
        {"run": "until [ -e go ]; do sleep 0.1; done"},
        {"desk": ["/ask", {"question": "Anybody there?"}]},
        {"say": "I wait."},
    )
    now = await world.at_work(task)
    # The next server starts when the agent has asked, and no sooner.
    await world.made.kill()
    async with at_provider(world.made.data) as provider:
        async for found in provider.find({"paddock.sandbox": now["sandbox_id"]}):
            async with Guest(await provider.guest(found.ref)) as guest:
                await guest.exec(("touch", f"{now['directory']}/go"))
                assert await guest.desks.take(f"{task['id']}.1", 0, wait_s=60)
    await world.made.start()
    waits = await world.until(task, lambda now: now["waits_for"] or now["ended_at"])
    assert waits["state"] == "waiting", waits["detail"]
    listed = (await world.call("GET", "/v1/approvals?kind=agent&state=pending"))["items"]
    assert [each["title"] for each in listed] == ["Anybody there?"]
    await world.call("POST", f"/v1/tasks/{task['id']}/cancel")
    assert (await world.until(task, lambda now: now["ended_at"]))["state"] == "cancelled"


@pytest.mark.proves("M9")
async def test_a_task_that_was_paused_is_so_after_the_server_has_died(world):
    task = await world.begin({"clock": 1}, {"run": "until [ -e go ]; do sleep 0.1; done"})
    now = await world.at_work(task)
    await world.call("POST", f"/v1/tasks/{task['id']}/pause")
    await world.until(task, lambda now: now["state"] == "waiting")
    await world.die()
    path = f"/v1/sandboxes/{now['sandbox_id']}/exec"
    stopped = {"cmd": ["sh", "-c", "cat /proc/[0-9]*/stat | grep -c ' T '"]}
    assert int((await world.call("POST", path, stopped))["stdout"]) >= 1
    await world.call("POST", path, {"cmd": ["touch", f"{now['directory']}/go"]})
    assert (await world.call("GET", f"/v1/tasks/{task['id']}"))["state"] == "waiting"
    await world.call("POST", f"/v1/tasks/{task['id']}/resume")
    ended = await world.until(task, lambda now: now["ended_at"])
    assert ended["state"] == "completed", ended["detail"]
