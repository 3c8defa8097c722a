"""Tasks: how long what is said takes, to an agent and from it."""

import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

from bench import rows
from bench.measurements import Stage, measures
from bench.server import Api, server
from paddock.testing.agent import prompt_of

_MESSAGES = 50
_LINES = 100
_CLIENTS = 50
_AGENT = "paddock.testing.agent:ScriptedAgent"


@contextlib.asynccontextmanager
async def with_agents() -> AsyncIterator[Api]:
    async with server(1, agents__own=_AGENT) as (api, _data):
        yield api
        await _remove_all(api)


async def _begin(api: Api, *steps: dict[str, Any]) -> str:
    wish = {"prompt": prompt_of(*steps), "agent": "scripted"}
    return str((await api.call("POST", "/v1/tasks", wish))["id"])


async def _events(api: Api, task: str, kind: str) -> AsyncIterator[dict[str, Any]]:
    url = f"{api.url}/v1/tasks/{task}/events?kind={kind}"
    async with api.session.get(url, headers={"authorization": f"Bearer {api.token}"}) as answer:
        async for line in answer.content:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


@measures("a message to an agent, from POST to its receipt, p50")
async def messages(api: Api) -> list[rows.Row]:
    """To one that is between two tools: from the request until somebody who follows has heard that
    its program has it."""
    task = await _begin(api, {"say": "ready"}, {"await": _MESSAGES}, {"say": "done"})
    delivered: dict[str, float] = {}
    news = asyncio.Event()

    async def follow() -> None:
        async for event in _events(api, task, "task.message"):
            if event["data"].get("state") == "delivered":
                delivered[event["data"]["message"]] = time.perf_counter()
                news.set()

    following = asyncio.create_task(follow())
    async with asyncio.timeout(60):
        async for _ in _events(api, task, "agent.message"):
            break
    times = []
    for number in range(_MESSAGES):
        began = time.perf_counter()
        wish = {"text": f"message {number}", "mode": "now"}
        sent = await api.call("POST", f"/v1/tasks/{task}/messages", wish)
        async with asyncio.timeout(10):
            while sent["id"] not in delivered:
                news.clear()
                await news.wait()
        times.append((delivered[sent["id"]] - began) * 1e3)
    async with asyncio.timeout(60):
        await following
    return [rows.at_most(statistics.median(times), 100, "ms")]


@measures(f"an agent's line to each of {_CLIENTS} SSE clients, p50")
async def lines(api: Api) -> list[rows.Row]:
    """From the moment the agent writes a line, by its own word, until each client has it."""
    task = await _begin(api, {"sleep": 3}, {"clock": _LINES}, {"say": "done"})

    async def follow() -> list[float]:
        delays = []
        async for event in _events(api, task, "agent.message"):
            now = time.time()
            if (said := event["data"].get("text", "done")) != "done":
                delays.append((now - float(said)) * 1e3)
        assert len(delays) == _LINES
        return delays

    async with asyncio.timeout(120):
        found = await asyncio.gather(*(follow() for _ in range(_CLIENTS)))
    middle = statistics.median(delay for delays in found for delay in delays)
    return [rows.at_most(middle, 20, "ms")]


async def _remove_all(api: Api) -> None:
    for item in (await api.call("GET", "/v1/sandboxes?limit=500"))["items"]:
        await api.call("DELETE", f"/v1/sandboxes/{item['id']}?force=true")


STAGES = (Stage("a server with an agent", with_agents, (messages, lines)),)
