"""Tasks by agents that are any program: their whole way through a sandbox's guest."""

import sys
from pathlib import Path

import pytest

from paddock.domain.message import MessageState, Mode
from paddock.domain.task import TaskState
from paddock.domain.task_wish import TaskWish, Workspace
from paddock.services.task_plans import Submission

pytestmark = pytest.mark.timeout(120)
SERVER = [sys.executable, str(Path(__file__).with_name("acp_server.py"))]


async def begun(working, agent, command, prompt):
    wish = {"workspace": Workspace(template="plain"), "options": {"command": command}}
    return await working.tasks.create(
        working.who, Submission(TaskWish(prompt, agent=agent, **wish))
    )


@pytest.mark.proves("T3")
async def test_a_program_gets_all_of_its_prompt_and_then_the_end_of_its_input(working):
    prompt = 'it\'s "$(id)" é\n' * 60_000
    script = 'cat > got; cmp got "$PADDOCK_PROMPT_FILE" && wc -c < got'
    task = await begun(working, "command", ["/bin/sh", "-c", script], prompt)
    task = await working.ended(task)
    assert (task.state, task.detail) == (TaskState.COMPLETED, "")
    assert task.result.message == str(len(prompt.encode()))


async def test_an_agent_that_speaks_acp_is_interrupted_by_a_message(working):
    task = await begun(working, "acp", SERVER, "wait for me")
    await working.until(task, lambda now: now.conversation.session == "s1")
    told = await working.tasks.send(working.who, task.id, "do this", Mode.INTERRUPT)
    task = await working.ended(task)
    assert (task.state, task.detail) == (TaskState.COMPLETED, "")
    assert task.result.message == "heard do this"
    assert await working.read(task, "heard.txt") == "do this\n"
    (kept,) = await working.tasks.messages(working.who, task.id)
    assert (kept.id, kept.state) == (told.id, MessageState.SEEN)
