"""What a task costs: counted at the gateway, charged to that task, complete when it has ended."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from paddock.testing.models import Script, Turn, Usage
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
    wish = {"prompt": marker, "agent": "command", "options": options, **more}
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
    third = await ended(plane, "LARGE", sandbox=first["sandbox_id"])
    assert [each["spent"]["cost_usd"] for each in (first, second, third)] == [
        pytest.approx(cost("LARGE")),
        pytest.approx(cost("SMALL")),
        pytest.approx(cost("LARGE")),
    ]
