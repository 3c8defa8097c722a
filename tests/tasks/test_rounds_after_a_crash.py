"""A server that is killed between the rounds of a task repeats none that is over."""

import asyncio
import json

import pytest

from paddock.testing.agent import prompt_of
from tests.tasks.conftest import OWN
from tests.tasks.test_chaos import insist, over
from tests.wiring_server import Server, server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
# Each round's check waits until somebody lets it go; it knows the round by what the agent did.
CHECK = """
n=$(wc -l < log)
echo "$n" >> ~/checked
until [ -e "$HOME/go$n" ]; do sleep 0.05; done
test "$n" = 3
"""


REVIEW = [
    {"run": "echo begun >> ~/reviewing; until [ -e ~/go-review ]; do sleep 0.05; done"},
    {"say": json.dumps({"verdict": "approve", "findings": []})},
]


def work() -> str:
    steps: list[dict] = []
    for number in (1, 2, 3):
        steps += [{"append": ["log", f"{number}\n"]}, {"end": f"round {number}"}]
    return prompt_of(*steps)


async def shell(made: Server, task: dict, line: str) -> str:
    now = await insist(made, "GET", f"/v1/tasks/{task['id']}")
    path = f"/v1/sandboxes/{now['sandbox_id']}/exec"
    ran = await insist(made, "POST", path, {"cmd": ["sh", "-c", line]})
    return ran["stdout"]


async def checking(made: Server, task: dict, number: int) -> None:
    """Until the check of this round waits."""
    async with asyncio.timeout(120):
        while True:
            now = await insist(made, "GET", f"/v1/tasks/{task['id']}")
            assert now["ended_at"] is None, now
            if now["phase"] == "build_check":
                said = await shell(made, task, "cat ~/checked 2>/dev/null")
                if str(number) in said.split():
                    return
            await asyncio.sleep(0.05)


async def reviewing(made: Server, task: dict) -> None:
    """Until the reviewer is at it."""
    async with asyncio.timeout(120):
        while "begun" not in await shell(made, task, "cat ~/reviewing 2>/dev/null"):
            await asyncio.sleep(0.05)


async def told(made: Server, task: dict, count: int) -> None:
    """Until so many rounds are over."""
    path = f"/v1/tasks/{task['id']}/events?format=ndjson&follow=false"
    async with asyncio.timeout(120):
        while True:
            kinds = [each["kind"] async for each in made.admin.lines("GET", path)]
            if kinds.count("task.round") >= count:
                return
            await asyncio.sleep(0.01)


@pytest.mark.proves("T13", "T18", "T19", "T12")
async def test_no_round_that_is_over_is_repeated_by_a_server_that_was_killed():
    reviewer = "paddock.testing.agent:ScriptedReviewer"
    async with server(agents__own=f"{OWN},{reviewer}") as made:
        wish = {
            "review": {"agent": "scripted_reviewer", "min_lines": 1},
            "env": {"SCRIPTED_REVIEW": json.dumps([REVIEW])},
            "prompt": work(),
            "agent": "scripted",
            "checks": [{"name": "third", "cmd": ["sh", "-c", CHECK]}],
            "rounds": {"most": 5},
        }
        task = await insist(made, "POST", "/v1/tasks", wish, headers={"Idempotency-Key": "one"})
        await checking(made, task, 1)
        await shell(made, task, "touch ~/go1")
        await told(made, task, 1)  # between the first round and the second
        await made.kill()
        await made.start()
        await checking(made, task, 2)  # in the middle of what ends the second
        await made.kill()
        await made.start()
        await checking(made, task, 2)
        await shell(made, task, "touch ~/go2 ~/go3")
        await reviewing(made, task)
        await made.kill()
        await made.start()
        await shell(made, task, "touch ~/go-review")
        ended = await over(made, task["id"])
        assert ended["state"] == "completed", ended["detail"]
        log = await insist(
            made,
            "POST",
            f"/v1/sandboxes/{ended['sandbox_id']}/exec",
            {"cmd": ["cat", "log"], "cwd": ended["directory"]},
        )
        assert log["stdout"].split() == ["1", "2", "3"]
        path = f"/v1/tasks/{task['id']}/events?format=ndjson&follow=false"
        events = [each async for each in made.admin.lines("GET", path)]
        rounds = [each["data"]["round"] for each in events if each["kind"] == "task.round"]
        assert rounds == [1, 2, 3]
        assert [each["number"] for each in ended["result"]["rounds"]] == [1, 2, 3]
        assert [each["failed"] for each in ended["result"]["rounds"]] == [["third"], ["third"], []]
        checked = (await shell(made, task, "cat ~/checked")).split()
        assert checked.count("1") == 1
        assert [each["approved"] for each in ended["result"]["reviews"]] == [True]
        assert (await shell(made, task, "cat ~/reviewing")).split() == ["begun"]
        assert [each["kind"] for each in events].count("task.reviewed") == 1
        assert ended["result"]["message"] == "round 3"
