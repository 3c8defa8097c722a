"""What is kept of a conversation with an agent: how many answers its model has given."""

import pytest

from paddock.domain.agent import Talk
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.conversation import Conversation, begun, stepped

_K = AgentEventKind
THINKS, SAYS, CALLS = (AgentEvent(kind) for kind in (_K.THINKING, _K.MESSAGE, _K.TOOL_CALL))
RESULT, EDITED = AgentEvent(_K.TOOL_RESULT), AgentEvent(_K.FILE_EDITED)
USAGE, ENDS = AgentEvent(_K.USAGE), AgentEvent(_K.COMPLETED, {"text": "done"})
BROKEN_OFF = AgentEvent(_K.COMPLETED, {"text": "", "ok": False})


@pytest.mark.parametrize(
    ("events", "turns"),
    [
        ([SAYS, ENDS], 1),
        ([ENDS], 1),
        ([BROKEN_OFF], 0),
        ([SAYS, BROKEN_OFF], 1),
        ([THINKS, SAYS, CALLS], 0),
        ([THINKS, SAYS, CALLS, RESULT], 1),
        ([CALLS, CALLS, RESULT, RESULT, SAYS, USAGE, ENDS], 2),
        ([CALLS, EDITED, RESULT, CALLS, RESULT, EDITED, CALLS, RESULT], 3),
        ([SAYS, SAYS, ENDS, SAYS, ENDS], 2),
        ([RESULT, RESULT, USAGE], 0),
    ],
)
def test_a_turn_is_an_answer_of_the_model_with_its_tools(events, turns):
    at_once = stepped(Conversation(run=1), Talk(events=tuple(events)))
    assert at_once.turns == turns
    one_by_one = Conversation(run=1)
    for each in events:
        one_by_one = stepped(one_by_one, Talk(events=(each,)))
    assert one_by_one.turns == turns
    assert begun(one_by_one).turns == 0
