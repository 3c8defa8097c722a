"""Agents that end without a word: the same for each, whoever made it."""

import pytest

from paddock.adapters.agents.acp import Acp
from paddock.adapters.agents.claude_code import ClaudeCode
from paddock.adapters.agents.codex import Codex
from paddock.adapters.agents.command import Command
from paddock.adapters.agents.gemini import Gemini
from paddock.adapters.agents.opencode import OpenCode
from paddock.domain.conversation import Conversation, begun, complained, ended, stepped
from paddock.domain.reason import Reason
from paddock.domain.task_course import Step, after_run
from tests.adapters.agents.recorded import brief

AGENTS = [Acp(), ClaudeCode(), Codex(), Command(), Gemini(), OpenCode()]


def after(agent, exit_code, said=""):
    conversation = stepped(
        begun(Conversation()), agent.begin(brief(options={"command": ["/bin/true"]}))
    )
    conversation = complained(conversation, said.encode())
    talk = agent.end(conversation.talk, exit_code, said)
    over = ended(stepped(conversation, talk), exit_code, is_lost=False)
    return after_run(over, is_cancelled=False, resumes=False, mail=[])


@pytest.mark.proves("T7")
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.traits.name)
def test_one_that_ends_with_0_and_did_nothing_gave_no_output(agent):
    silent = after(agent, 0)
    assert (silent.step, silent.reason) == (Step.FAIL, Reason.NO_OUTPUT)
    assert silent.why == "no output: it ended with 0 and did nothing"
    warned = after(agent, 0, "it is deprecated\n")
    assert (warned.reason, "it is deprecated" in warned.why) == (Reason.NO_OUTPUT, True)


@pytest.mark.proves("T7")
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.traits.name)
def test_one_that_fails_or_lacks_something_is_told_from_it(agent):
    failed = after(agent, 3)
    assert (failed.step, failed.reason) == (Step.FAIL, Reason.AGENT_ERROR)
    assert "ended with 3" in failed.why
    assert after(agent, 0, "not logged in").reason is Reason.SURROUNDINGS
