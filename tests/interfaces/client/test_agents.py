"""Agents in the SDK, with and without an event loop."""

from contextlib import contextmanager

import pytest

from paddock import Agents, AsyncAgents, Forbidden, NotFound, Server
from paddock.adapters.agents.registry import AGENTS
from paddock.interfaces.client.portal import portal

PACKAGE = AGENTS["claude_code"].traits.package


def _put(running):
    name = f"anthropic-ai-claude-code-{PACKAGE.version}"
    program = running.plane.place / "data" / "agents" / name / "node_modules"
    program /= PACKAGE.program.replace("*", "x64")
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\necho 2.1\n")
    program.chmod(0o755)


async def test_agents_are_seen_and_installed(running):
    async with running.server() as server:
        listed = [each async for each in AsyncAgents.list(server=server)]
        assert [each.name for each in listed] == sorted(AGENTS)
        claude = await AsyncAgents.get("claude_code", server=server)
        assert (claude.version, claude.ready) == (PACKAGE.version, False)
        assert claude.credentials[0].name == "ANTHROPIC_API_KEY"
        _put(running)
        assert (await AsyncAgents.install("claude_code", server=server)).installed
        with pytest.raises(NotFound):
            await AsyncAgents.install("nope", server=server)


@contextmanager
def connected(running, token):
    server = Server(running.url, token)
    try:
        yield server
    finally:
        portal().run(server.aclose())


def test_so_they_are_without_a_loop(running):
    _put(running)
    with connected(running, running.token) as server:
        assert [each.name for each in Agents.list(server=server)] == sorted(AGENTS)
        assert Agents.install("claude_code", server=server).installed


def test_who_is_no_operator_is_told(running):
    stranger = running.do(running.plane.team("of-others"))
    with connected(running, stranger.token) as server, pytest.raises(Forbidden, match="operators"):
        Agents.install("claude_code", server=server)
