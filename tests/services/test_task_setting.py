"""Which model API an agent is sent to, and with which key."""

import tomllib

import pytest

from paddock.adapters.agents.claude_code import ClaudeCode
from paddock.adapters.agents.codex import Codex
from paddock.adapters.agents.gemini import Gemini
from paddock.adapters.agents.opencode import OpenCode
from paddock.adapters.egress.prices import shipped_prices
from paddock.domain.broker.binding import Binding, Way, completed
from paddock.services.task_setting import ways_to_models
from tests.adapters.agents.recorded import brief

OWN = "https://llm.example.org/v1"
ROUTE = completed(Binding("team", "team", "OPENAI_API_KEY", Way.MODEL, (), route="openai"))


def launched(agent, env, **bound):
    urls, keys = ways_to_models(bound, env)
    return agent.launch(brief(env=env, routes=urls, keys=keys))


@pytest.mark.parametrize("bound", [{}, {"openai": ROUTE}], ids=["no route", "a route"])
def test_codex_sends_the_key_of_a_task_to_the_base_url_of_that_task(bound):
    env = {"OPENAI_API_KEY": "sk-own", "OPENAI_BASE_URL": OWN}
    flags = launched(Codex(), env, **bound).argv[2:]
    provider = tomllib.loads("\n".join(flags[1::2]))["model_providers"]["paddock"]
    assert (provider["base_url"], provider["env_key"]) == (OWN, "OPENAI_API_KEY")


@pytest.mark.parametrize("bound", [{}, {"openai": ROUTE}], ids=["no route", "a route"])
def test_the_other_agents_do_so_as_well(bound):
    env = {"OPENAI_API_KEY": "sk-own", "OPENAI_BASE_URL": OWN}
    config = launched(OpenCode(), env, **bound).env["OPENCODE_CONFIG_CONTENT"]
    assert OWN in config
    assert "{env:OPENAI_API_KEY}" in config
    claude = launched(ClaudeCode(), {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": OWN}, **bound)
    assert claude.env["ANTHROPIC_BASE_URL"] == OWN
    gemini = launched(Gemini(), {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": OWN}, **bound)
    assert gemini.env["GOOGLE_GEMINI_BASE_URL"] == OWN


def test_without_a_base_url_of_its_own_a_task_uses_the_bound_route():
    urls, keys = ways_to_models({"openai": ROUTE}, {"OPENAI_API_KEY": "sk-own"})
    assert urls == {"openai": "http://openai.models.paddock.internal/v1"}
    assert keys == {"openai": "OPENAI_API_KEY"}


@pytest.mark.parametrize("agent", [ClaudeCode(), Codex(), OpenCode(), Gemini()])
def test_the_default_model_of_every_agent_has_a_price(agent):
    assert shipped_prices().knows(agent.traits.default_model)
