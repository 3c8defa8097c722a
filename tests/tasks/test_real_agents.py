"""Real agents at work in real sandboxes, with nothing but a placeholder for a key."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.egress.prices import shipped_prices
from paddock.domain.broker.models import Tokens
from paddock.testing.models import CallMcp, EditFile, Fail, RunShell, Script, Turn, Usage, WriteFile
from tests.engines import AGENTS
from tests.tasks.model_outside import NAME, ModelOutside, model_outside
from tests.wiring_server import Server, destroy, server

pytestmark = [pytest.mark.timeout(400)]
KEY = "sk-the-real-key-0123456789abcdef"
WORK = Script(
    (
        Turn(say="I will write it.", calls=(WriteFile("a.txt", "one\ntwo\n"),)),
        Turn(calls=(RunShell("until [ -e go ]; do sleep 0.05; done; echo went"),)),
        Turn(calls=(EditFile("a.txt", "two", "2"),), usage=Usage(1000, 50, 400)),
        Turn(say="It is done."),
    ),
    name="work",
    marker="WORK",
    afterwards=Turn(say="And that too."),
)
BREAK = Script(
    (Turn(say="I begin.", calls=(RunShell("touch held; sleep 300"),)), Turn(say="I leave it.")),
    name="break",
    marker="BREAK",
    afterwards=Turn(say="I leave it."),
)
LONG = Script(
    (Turn(calls=(RunShell("touch begun; sleep 300"),)), Turn(say="never")),
    name="long",
    marker="LONG",
)
LOOK = Script(
    (
        Turn(say="I will look.", calls=(WriteFile("b.txt", "not to be\n"),)),
        Turn(say="I have looked."),
    ),
    name="look",
    marker="LOOK",
    afterwards=Turn(say="I have looked."),
)

ASK = Script(
    (
        Turn(
            say="I ask.",
            calls=(
                CallMcp("paddock", "report_progress", {"text": "looking", "percent": 10}),
                CallMcp(
                    "paddock",
                    "ask_person",
                    {"question": "Which colour?", "options": ["red", "blue"]},
                ),
            ),
        ),
        Turn(say="I wait for the answer."),
    ),
    name="ask",
    marker="ASK",
    afterwards=Turn(say="As you say."),
)

LOSE = Script(
    (
        Turn(say="I will write it.", calls=(WriteFile("a.txt", "one\n"),)),
        Turn(calls=(RunShell("touch held; until [ -e go ]; do sleep 0.05; done; echo went"),)),
        Turn(say="It is done."),
    ),
    name="lose",
    marker="LOSE",
    afterwards=Turn(say="And that too."),
)

MUCH = Script((Turn(say="Paid.", usage=Usage(500_000, 9000)),), name="much", marker="PAY much")
LITTLE = Script((Turn(say="Paid.", usage=Usage(90_000, 700)),), name="little", marker="PAY little")

MISSING = "The model `gpt-nine` does not exist or you do not have access to it."
GONE = Script((Turn(fail=Fail(404, MISSING)),), name="gone", marker="GONE")


@dataclass(frozen=True)
class Real:
    agent: str
    route: str
    variable: str
    suffix: str = ""
    model: str = ""
    tells_usage: bool = True
    """What it has used; otherwise that is only counted outside."""


REAL = [
    Real("claude_code", "anthropic", "ANTHROPIC_API_KEY", model="claude-sonnet-4-5"),
    Real("codex", "openai", "OPENAI_API_KEY", "/v1", "gpt-5.5"),
    Real("opencode", "openai", "OPENAI_API_KEY", "/v1", "openai/gpt-5.5", tells_usage=False),
    Real("gemini", "gemini", "GEMINI_API_KEY", model="gemini-2.5-pro"),
]


def each_agent(**marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Run a test with every agent; `marks` are those of single agents."""
    real = [pytest.param(it, marks=marks.get(it.agent, ())) for it in REAL]
    return pytest.mark.parametrize("real", real, indirect=True, ids=lambda it: it.agent)


@dataclass
class World:
    plane: Server
    outside: ModelOutside

    async def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer = await self.plane.admin.call(method, path, body, within_s=300)
        assert answer.status < 300, answer.body
        return answer.body

    async def begin(self, real: Real, prompt: str, **more: object) -> dict[str, Any]:
        wish = {"prompt": prompt, "agent": real.agent, "model": real.model, **more}
        return await self.call("POST", "/v1/tasks", wish)

    async def until(self, task: dict, holds, within_s: float = 120) -> dict[str, Any]:
        async with asyncio.timeout(within_s):
            while not holds(now := await self.call("GET", f"/v1/tasks/{task['id']}")):
                await asyncio.sleep(0.1)
        return now

    async def ended(self, task: dict) -> dict[str, Any]:
        return await self.until(task, lambda now: now["ended_at"] is not None)

    async def events(self, task: dict) -> list[dict[str, Any]]:
        path = f"/v1/tasks/{task['id']}/events?format=ndjson&follow=false"
        return [each async for each in self.plane.admin.lines("GET", path)]

    async def run(self, task: dict, *argv: str) -> str:
        now = await self.call("GET", f"/v1/tasks/{task['id']}")
        path = f"/v1/sandboxes/{now['sandbox_id']}/exec"
        return (await self.call("POST", path, {"cmd": argv, "cwd": now["directory"]}))["stdout"]


@pytest.fixture(scope="module")
async def world() -> AsyncIterator[World]:
    async with world_of() as made:
        yield made


@asynccontextmanager
async def world_of() -> AsyncIterator[World]:
    async with model_outside(WORK, BREAK, LONG, LOOK, LOSE, ASK, GONE, MUCH, LITTLE) as there:
        settings = {
            "egress__hosts": json.dumps({NAME: there.there.address}),
            "egress__certificates": str(there.there.certificate),
            "agents__dir": str(AGENTS),
        }
        async with server(**settings) as plane:
            made = World(plane, there)
            for real in REAL:
                await made.call("PUT", f"/v1/secrets/{real.variable}", {"value": KEY})
                wish = {"route": real.route, "base_url": there.base_url + real.suffix}
                await made.call("PUT", f"/v1/secrets/{real.variable}/bindings/model", wish)
            yield made


@pytest.fixture(params=REAL, ids=lambda real: real.agent)
async def real(request, world, need) -> Real:
    chosen: Real = request.param
    answer = await world.plane.admin.call("GET", f"/v1/agents/{chosen.agent}")
    if answer.status != 200 or not answer["installed"]:
        made = await world.plane.admin.post(f"/v1/agents/{chosen.agent}/install", within_s=300)
        if made.status >= 300:
            need(chosen.agent, str(made.body))
    return chosen


@pytest.mark.proves("M3", "T8", "T3")
@pytest.mark.slow
async def test_an_agent_works_hears_a_message_goes_on_later_and_can_be_cancelled(world, real):
    task = await world.begin(real, "WORK on a.txt, please")
    await world.until(task, lambda now: now["directory"])
    async with asyncio.timeout(90):
        while "one" not in await world.run(task, "cat", "a.txt"):
            await asyncio.sleep(0.2)
    path = f"/v1/tasks/{task['id']}/messages"
    sent = await world.call("POST", path, {"text": "Mind the commas.", "mode": "now"})
    await world.run(task, "touch", "go")
    ended = await world.ended(task)
    assert ended["state"] == "completed", ended["detail"]
    assert ended["result"]["message"].startswith(("It is done.", "And that too."))
    assert await world.run(task, "cat", "a.txt") == "one\n2\n"
    receipt = await world.call("GET", f"{path}/{sent['id']}")
    assert receipt["state"] == "seen", receipt
    assert any("Mind the commas." in str(each.body) for each in world.outside.model.turns)
    told = await world.events(task)
    kinds = {each["kind"] for each in told}
    assert {"agent.started", "agent.message", "agent.tool_call", "agent.tool_result"} <= kinds
    assert "agent.completed" in kinds
    edited = [each["data"] for each in told if each["kind"] == "agent.file_edited"]
    assert {each["path"].rpartition("/")[2] for each in edited} == {"a.txt"}
    if real.tells_usage:
        used = [each["data"] for each in told if each["kind"] == "agent.usage"]
        assert sum(each["input_tokens"] for each in used) >= 1000
    assert ended["spent"]["turns"] >= len(WORK.turns)
    files = {each["path"] for each in ended["result"]["files"]}
    assert "a.txt" in files
    # Counted outside, where it is told of a little later.
    await world.until(task, lambda now: now["spent"]["input_tokens"] >= 4000, 20)

    # With its session: what was said before is before the model again.
    follow = {"prompt": "WORK once more", "follows": task["id"]}
    again = await world.ended(await world.call("POST", "/v1/tasks", follow))
    assert again["state"] == "completed", again["detail"]
    last = str(world.outside.model.turns[-1].body)
    assert "WORK on a.txt, please" in last
    assert "WORK once more" in last

    await interrupted(world, real, ended["sandbox_id"])

    long = await world.begin(real, "LONG work", sandbox=ended["sandbox_id"])
    await world.until(long, lambda now: now["directory"])
    async with asyncio.timeout(60):
        while "begun" not in await world.run(long, "ls"):
            await asyncio.sleep(0.2)
    await world.call("POST", f"/v1/tasks/{long['id']}/cancel")
    stopped = await world.ended(long)
    assert (stopped["state"], stopped["reason"]) == ("cancelled", "cancelled")
    assert "sleep 300" not in await world.run(task, "ps", "-eo", "args")

    # The key was used, and has never been inside.
    assert KEY in world.outside.heads
    inside = await world.run(task, "sh", "-c", "env; cat ~/.c*/* ~/.paddock/*/* 2>/dev/null; true")
    assert KEY not in inside
    assert KEY not in json.dumps(told)


async def interrupted(world: World, real: Real, sandbox: str) -> None:
    """What it does is broken off, and it reads why, once."""
    task = await world.begin(real, "BREAK off later", sandbox=sandbox)
    await world.until(task, lambda now: now["directory"])
    async with asyncio.timeout(60):
        while "held" not in await world.run(task, "ls"):
            await asyncio.sleep(0.2)
    path = f"/v1/tasks/{task['id']}/messages"
    sent = await world.call("POST", path, {"text": "Leave it be.", "mode": "interrupt"})
    ended = await world.ended(task)
    assert ended["state"] == "completed", ended["detail"]
    assert (await world.call("GET", f"{path}/{sent['id']}"))["state"] == "seen"
    last = [each for each in world.outside.model.turns if "BREAK off later" in str(each.body)][-1]
    assert str(last.body).count("Leave it be.") == 1


def charged(real: Real, *turns: Turn) -> float:
    """In dollars, by the shipped table."""
    price = shipped_prices().of(real.model)
    return sum(price.cost(Tokens(each.usage.input, each.usage.output)) for each in turns)


@pytest.mark.slow
async def test_tasks_in_one_sandbox_pay_for_their_own_use_and_a_slash_is_no_command(world, real):
    """To the cent, in the answer that first says that the task has ended."""
    first = await world.ended(await world.begin(real, "/clear PAY much"))
    assert first["state"] == "completed", first["detail"]
    sandbox = first["sandbox_id"]
    second = await world.ended(await world.begin(real, "/clear PAY little", sandbox=sandbox))
    assert second["state"] == "completed", second["detail"]
    assert round(first["spent"]["cost_usd"], 2) == round(charged(real, *MUCH.turns), 2)
    assert round(second["spent"]["cost_usd"], 2) == round(charged(real, *LITTLE.turns), 2)


@pytest.mark.proves("T22")
@pytest.mark.slow
async def test_an_agent_that_is_only_to_look_keeps_to_it_by_itself(world, real):
    """Its own refusal is before ours. Codex has none that works here: its work is put back."""
    task = await world.ended(await world.begin(real, "LOOK around", mode="explore"))
    shown = await world.call("GET", f"/v1/agents/{real.agent}")
    assert ("explore" in shown["keeps_to"]) == (real.agent != "codex")
    if real.agent == "codex":
        assert (task["state"], task["reason"]) == ("failed", "changed_files"), task["detail"]
        assert task["result"]["reverted"] == ["b.txt"]
        assert "not to be" not in await world.run(task, "sh", "-c", "cat b.txt 2>&1")
        return
    assert task["result"]["reverted"] == []
    if real.agent == "opencode":  # it does not even tell its model of tools that write
        offered = task["detail"].partition("it offers: ")[2].split(", ")
        assert {"glob", "grep", "read"} <= set(offered)
        assert not {"bash", "edit", "write", "apply_patch"} & set(offered)
    else:
        assert task["state"] == "completed", task["detail"]
        assert task["result"]["message"].startswith("I have looked.")
    assert "not to be" not in await world.run(task, "sh", "-c", "cat b.txt 2>&1")


@pytest.mark.proves("M10", "T15")
@each_agent(opencode=pytest.mark.slow, gemini=pytest.mark.slow)
async def test_an_agent_asks_a_person_at_its_desk_and_goes_on_with_the_answer(world, real):
    task = await world.begin(real, "ASK me, please")
    waits = await world.until(task, lambda now: now["waits_for"] or now["ended_at"])
    assert waits["state"] == "waiting", (waits["detail"], await world.events(task))
    assert (waits["progress"]["text"], waits["progress"]["percent"]) == ("looking", 10.0)
    asked = await world.call("GET", f"/v1/approvals/{waits['waits_for']}")
    assert (asked["kind"], asked["title"]) == ("agent", "Which colour?")
    assert asked["detail"]["options"] == ["red", "blue"]
    said = {"answer": "allowed_once", "note": "2"}
    await world.call("POST", f"/v1/approvals/{asked['id']}/answer", said)
    ended = await world.ended(task)
    assert (ended["state"], ended["result"]["message"]) == ("completed", "As you say.")
    last = str(world.outside.model.turns[-1].body)
    assert "ASK me, please" in last
    assert "The answer: blue" in last
    # What opens the desk is before no model, and in nothing that is told.
    everything = json.dumps(await world.events(task)) + str(world.outside.model.turns)
    assert "ptr_" not in everything


@pytest.mark.proves("M10")
@pytest.mark.slow
@pytest.mark.parametrize("real", REAL[:1], indirect=True, ids=lambda real: real.agent)
async def test_one_that_is_only_to_look_may_ask(world, real):
    task = await world.begin(real, "ASK me, please", mode="explore")
    waits = await world.until(task, lambda now: now["waits_for"] or now["ended_at"])
    assert waits["state"] == "waiting", waits["detail"]
    await world.call("POST", f"/v1/tasks/{task['id']}/cancel")
    assert (await world.ended(task))["state"] == "cancelled"


@pytest.mark.proves("T3")
@pytest.mark.slow
@each_agent(opencode=pytest.mark.soak)  # the longest of all by far
async def test_a_model_that_its_route_does_not_know_is_named_in_the_end(world, real):
    task = await world.ended(await world.begin(real, "GONE with the model"))
    assert (task["state"], task["reason"]) == ("failed", "surroundings"), task
    # One says it in its own words, with the name that it was given.
    assert "gpt-nine" in task["detail"] or real.model in task["detail"], task["detail"]
    assert "not exist" in task["detail"], task["detail"]
    assert not task["result"]["files"]


@pytest.mark.proves("H4", "T4")
@pytest.mark.slow
async def test_an_agent_goes_on_with_its_session_where_its_sandbox_was_lost(world, real):
    task = await world.begin(real, "LOSE nothing, please")
    now = await world.until(task, lambda now: now["directory"])
    async with asyncio.timeout(90):
        while "held" not in await world.run(task, "ls"):
            await asyncio.sleep(0.2)
    lost = now["sandbox_id"]
    await world.call("POST", f"/v1/sandboxes/{lost}/snapshots", {})
    there = world.outside.there
    hosts, certificate = {NAME: there.address}, str(there.certificate)
    await destroy(world.plane.data, lost, EgressConfig(hosts=hosts, certificates=certificate))
    await world.until(task, lambda now: now["sandbox_id"] != lost and now["state"] == "running")
    await world.run(task, "touch", "go")
    ended = await world.ended(task)
    assert ended["state"] == "completed", ended["detail"]
    assert await world.run(task, "cat", "a.txt") == "one\n"
    assert [each["sandbox_id"] for each in ended["losses"]] == [lost]
    last = str(world.outside.model.turns[-1].body)
    assert "LOSE nothing, please" in last
    assert "The machine that you worked on was lost" in last
    begun = [each for each in await world.events(task) if each["kind"] == "agent.started"]
    assert len(begun) == 2, "it could not go on with its session, and began without it"
