"""The guardian over what real agents wrote, whatever they call their tools."""

import pytest

from paddock.adapters.agents.claude_code import ClaudeCode
from paddock.adapters.agents.codex import Codex
from paddock.adapters.agents.gemini import Gemini
from paddock.adapters.agents.opencode import OpenCode
from paddock.domain.guardian import Facts, GuardianPolicy, History, Place, watch
from paddock.ports.agent import Agent
from tests.adapters.agents.recorded import begun, sample

WHERE = Place("/workspace", "/home/user")


def found(agent: Agent, name: str, *, runs: str = "", scope: tuple[str, ...] = ()) -> set[str]:
    """What is brought up about a recording, in which another command was run."""
    lines = sample(name)
    if runs:
        assert any(b"echo A" in line for line in lines)
        lines = [line.replace(b"echo A", runs.encode()) for line in lines]
    told = begun(agent).hear(agent, lines)
    facts = Facts(1.0, place=WHERE, policy=GuardianPolicy(scope=scope))
    return {each.rule for each in watch(History(), told.events, facts).due}


@pytest.mark.proves("M6")
@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (Codex(), "codex-app_server"),
        (Gemini(), "gemini-shell-usage"),
        (OpenCode(), "opencode-acp"),
    ],
)
def test_a_dangerous_command_is_found_and_a_harmless_one_is_not(agent: Agent, name: str) -> None:
    assert found(agent, name) == set()
    assert found(agent, name, runs="rm -rf /") == {"danger"}
    assert found(agent, name, runs="echo rm -rf /") == set()


@pytest.mark.proves("M6")
@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (ClaudeCode(), "claude_code-edit"),
        (Codex(), "codex-app_server"),
        (Gemini(), "gemini-edit"),
        (OpenCode(), "opencode-acp"),
    ],
)
def test_a_file_outside_of_the_scope_is_found_and_one_within_is_not(
    agent: Agent, name: str
) -> None:
    assert found(agent, name, scope=("*.txt",)) == set()
    assert found(agent, name, scope=("src/**",)) == {"scope"}
