"""When a message is likely to be read: guessed from what the agent did lately, or not at all."""

from dataclasses import replace

import pytest

from paddock.domain import conversation as talks
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.conversation import Conversation
from paddock.domain.delivery import expected_at
from paddock.domain.message import Mode
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.task_wish import TaskWish

AT_WORK = Conversation(run=1, is_started=True, boundaries=(10.0, 14.0, 24.0, 28.0))


def task(talk=AT_WORK, **more):
    given = {"state": TaskState.RUNNING, "conversation": talk, **more}
    return TaskRecord("tsk_1", "team", "n", TaskWish("x", agent="a"), 0.0, 0.0, **given)


@pytest.mark.proves("M5")
@pytest.mark.parametrize(
    ("mode", "now", "expected"),
    [
        pytest.param(Mode.NOW, 29.0, 32.0, id="as far from the last as usual"),
        pytest.param(Mode.NOW, 40.0, 40.0, id="it is late, and may come at any moment"),
        pytest.param(Mode.NOW, 69.0, None, id="this step is of another kind"),
        pytest.param(Mode.INTERRUPT, 29.0, 29.0, id="at once"),
        pytest.param(Mode.TURN, 29.0, None, id="nobody knows when a turn ends"),
    ],
)
def test_the_next_boundary_is_guessed_from_the_last_ones(mode, now, expected):
    assert expected_at(task(), mode, now) == expected


@pytest.mark.parametrize(
    "at",
    [
        task(Conversation()),
        task(replace(AT_WORK, boundaries=(10.0, 14.0))),
        task(replace(AT_WORK, has_ended=True)),
        task(replace(AT_WORK, is_closing=True)),
        task(replace(AT_WORK, stopping_since=28.0)),
        task(state=TaskState.PENDING),
        task(state=TaskState.WAITING),
        task(state=TaskState.COMPLETING),
        task(paused_by="me"),
        task(is_cancelled=True),
    ],
)
def test_where_nothing_says_when_it_is_unknown(at):
    assert expected_at(at, Mode.NOW, 29.0) is None


def test_a_boundary_is_where_a_tool_has_ended_and_the_last_ones_are_kept():
    talk, ended = AT_WORK, AgentEvent(AgentEventKind.TOOL_RESULT)
    assert talks.paced(talk, [AgentEvent(AgentEventKind.TOOL_CALL)], 30.0) is talk
    for number in range(20):
        talk = talks.paced(talk, [ended, ended], 30.0 + number)
    assert talk.boundaries == tuple(41.0 + number for number in range(9))
    assert talks.begun(talk).boundaries == ()
