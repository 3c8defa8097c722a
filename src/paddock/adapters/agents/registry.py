"""All kinds of agents, by their names."""

import importlib
from collections.abc import Iterable, Mapping

from paddock.adapters.agents.acp import Acp
from paddock.adapters.agents.claude_code import ClaudeCode
from paddock.adapters.agents.codex import Codex
from paddock.adapters.agents.command import Command
from paddock.adapters.agents.gemini import Gemini
from paddock.adapters.agents.opencode import OpenCode
from paddock.domain.errors import InvalidRequest
from paddock.ports.agent import Agent

_KINDS: tuple[Agent, ...] = (ClaudeCode(), Codex(), OpenCode(), Gemini(), Acp(), Command())
AGENTS: Mapping[str, Agent] = {agent.traits.name: agent for agent in _KINDS}
_FUNCTIONS = ("check", "launch", "begin", "hear", "tell", "drop", "taken", "stop", "end")


def agent_named(name: str) -> Agent:
    if name not in AGENTS:
        raise InvalidRequest(
            f"there is no agent {name!r}", remediation=f"use one of {', '.join(sorted(AGENTS))}"
        )
    return AGENTS[name]


def own_agents(names: Iterable[str]) -> Mapping[str, Agent]:
    """Those that are not Paddock's: `package.module:name`, where the name makes one."""
    found = {}
    for each in names:
        module, _, name = each.partition(":")
        try:
            agent: Agent = getattr(importlib.import_module(module), name)()
            # Said now, and not when the first task needs it.
            for function in _FUNCTIONS:
                getattr(agent, function)
            found[agent.traits.name] = agent
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise InvalidRequest(
                f"agents.own names {each!r}, which is no agent: {error}",
                remediation="name a class with the agent's functions as package.module:Class",
            ) from error
    return found
