"""What a task costs: counted at the gateway, charged to that task, complete when it has ended."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from paddock.testing.models import Script, ScriptedModel, Turn, Usage
from tests.tasks.model_outside import NAME, model_outside
from tests.wiring_server import Server, server

pytestmark = pytest.mark.timeout(120)
ASK = (
    'curl -sf "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY" '
    '-d "{\\"model\\": \\"gpt-5\\", \\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": '
    '\\"$(cat)\\"}]}"'
)
PER_TOKEN = 1.25 / 1e6, 10 / 1e6
"""Input and output of gpt-5 in the shipped table."""
USED = {"SMALL": Usage(1000, 100), "LARGE": Usage(200_000, 3000)}
SCRIPTS = [
    Script((turn := Turn(say="ok", usage=usage),), marker, "", marker, turn, without_tools=True)
    for marker, usage in USED.items()
]


def cost(marker: str) -> float:
    return USED[marker].input * PER_TOKEN[0] + USED[marker].output * PER_TOKEN[1]


@pytest.fixture(scope="module")
async def plane(as_root: None) -> AsyncIterator[Server]:
    async with model_outside(*SCRIPTS) as there:
        settings = {
            "egress__hosts": json.dumps({NAME: there.there.address}),
            "egress__certificates": str(there.there.certificate),
        }
        async with server(**settings) as made:
            key = "/v1/secrets/OPENAI_API_KEY"
            await call(made, "PUT", key, {"value": "sk-the-real-key-0123456789abcdef"})
            route = {"route": "openai", "base_url": f"{there.base_url}/v1", "spend_limit_usd": 0.3}
            await call(made, "PUT", f"{key}/bindings/model", route)
            yield made


async def call(plane: Server, method: str, path: str, body: object = None) -> dict[str, Any]:
    answer = await plane.admin.call(method, path, body)
    assert answer.status < 300, answer.body
    return answer.body


async def ended(plane: Server, marker: str, **more: object) -> dict[str, Any]:
    options = {"command": ["sh", "-c", ASK]}
    wish = {"prompt": marker, "agent": "command", "options": options} | more
    task = await call(plane, "POST", "/v1/tasks", wish)
    async with asyncio.timeout(60):
        while task["ended_at"] is None:
            await asyncio.sleep(0.05)
            task = await call(plane, "GET", f"/v1/tasks/{task['id']}")
    assert task["state"] == "completed", task["detail"]
    return task


async def test_tasks_in_one_sandbox_are_charged_for_their_own_model_use(plane: Server):
    """Seen in the answer that first says that it has ended: nothing is added later."""
    first = await ended(plane, "LARGE")
    second = await ended(plane, "SMALL", sandbox=first["sandbox_id"])
    assert first["spent"]["cost_usd"] == pytest.approx(cost("LARGE"))
    assert second["spent"]["cost_usd"] == pytest.approx(cost("SMALL"))


async def test_a_model_on_this_host_is_a_route_that_only_an_operator_names(plane: Server):
    """As Ollama, vLLM and LM Studio are: plain HTTP, on loopback."""
    async with ScriptedModel(*SCRIPTS) as local:
        secret = "/v1/secrets/LOCAL_API_KEY"
        await call(plane, "PUT", secret, {"value": "none"})
        route = {"route": "local", "base_url": f"{local.url}/v1"}
        made = await plane.admin.post("/v1/teams", {"name": "other"})
        member = replace(plane.admin, token=made["token"]["token"])
        await member.call("PUT", secret, {"value": "none"})
        refused = await member.call("PUT", f"{secret}/bindings/model", route)
        assert (refused.status, refused.error["code"]) == (403, "forbidden")
        assert "only operators" in refused.error["message"]
        await call(plane, "PUT", f"{secret}/bindings/model", route)
        program = ["sh", "-c", ASK.replace("OPENAI_", "LOCAL_")]
        task = await ended(plane, "SMALL", options={"command": program})
        assert task["spent"]["input_tokens"] == USED["SMALL"].input
        assert len(local.turns) == 1
        # The route leads there, and nothing else does.
        look = {"cmd": ["curl", "-s", "-m", "5", f"{local.url}/v1/models"]}
        path = f"/v1/sandboxes/{task['sandbox_id']}/exec"
        assert (await call(plane, "POST", path, look))["exit_code"] != 0
        await call(plane, "DELETE", f"{secret}/bindings/model")


SCRIPT = """
without_tools = true
[[turns]]
say = "scripted"
usage = {input = 1234, output = 5}
"""


async def test_one_command_makes_agents_of_an_app_use_a_scripted_model(plane: Server, tmp_path):
    script = tmp_path / "script.toml"
    script.write_text(SCRIPT)
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "paddock", "test-model", str(script)),
        env={**os.environ, "PADDOCK_URL": plane.url, "PADDOCK_TOKEN": plane.admin.token},
        stdout=asyncio.subprocess.PIPE,
    )
    assert started.stdout is not None
    try:
        said = await asyncio.wait_for(started.stdout.readline(), 30)
        assert said.startswith(b"scripted model at http://127.0.0.1:")
        task = await ended(plane, "anything", app="test-model")
        assert task["spent"]["input_tokens"] == 1234
    finally:
        started.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(started.wait(), 30) == 0
    left = await call(plane, "GET", "/v1/secrets?app=test-model")
    assert left["items"] == []
    bound = await call(plane, "GET", "/v1/bindings?app=test-model")
    assert bound["items"] == []
