"""Agents over HTTP."""

from pathlib import Path

import pytest

from paddock.adapters.agents.registry import AGENTS
from tests.control_plane import disposable

CLAUDE = AGENTS["claude_code"].traits


@pytest.fixture(scope="module")
async def plane():
    async with disposable() as made:
        yield made


def _put(plane, text: str) -> Path:
    """An installation as it may be found on a host."""
    place = plane.place / "data" / "agents" / f"anthropic-ai-claude-code-{CLAUDE.package.version}"
    program = place / "node_modules" / CLAUDE.package.program.replace("*", "x64")
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(text)
    program.chmod(0o755)
    return program


async def test_agents_are_listed_with_what_they_can_and_what_they_lack(plane):
    listed = await plane.admin.get("/v1/agents")
    assert [item["name"] for item in listed["items"]] == sorted(AGENTS)
    one = await plane.admin.get("/v1/agents/claude_code")
    assert (one["version"], one["installed"], one["ready"]) == (
        CLAUDE.package.version,
        False,
        False,
    )
    assert one["modes"] == ["interrupt", "now", "turn"]
    assert one["credentials"][0] == {
        "name": "ANTHROPIC_API_KEY",
        "state": "missing",
        "route": "anthropic",
        "path": "",
    }
    assert any("provider reference" in each for each in one["lacks"])
    page = await plane.admin.get("/v1/agents?limit=1")
    assert [item["name"] for item in page["items"]] == sorted(AGENTS)[:1]
    assert (await plane.admin.get("/v1/agents/nope")).status == 404


async def test_an_installation_is_followed_to_its_end(plane):
    _put(plane, "#!/bin/sh\necho 2.1\n")
    path = "/v1/agents/claude_code/install?format=ndjson"
    messages = [each async for each in plane.admin.lines("POST", path)]
    assert messages[-1] == {"type": "installed", "agent": "claude_code"}
    assert messages[0]["text"].endswith("which is there")
    assert (await plane.admin.get("/v1/agents/claude_code"))["installed"]


async def test_only_operators_install(plane):
    stranger = await plane.team("workers")
    assert (await stranger.get("/v1/agents")).status == 200
    answer = await stranger.post("/v1/agents/claude_code/install")
    assert (answer.status, answer.error["code"]) == (403, "forbidden")
    assert "start a task" in answer.error["remediation"]
    reader = await plane.member(role="viewer")
    assert (await reader.get("/v1/agents")).status == 200
    assert (await reader.post("/v1/agents/claude_code/install")).status == 403
    assert (await plane.admin.post("/v1/agents/nope/install")).status == 404
