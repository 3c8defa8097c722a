"""How a run is judged, and how messages come through."""

import pytest

from paddock.domain import message as messages
from paddock.domain.agent_event import AgentEvent, AgentEventKind, Verdict, judged
from paddock.domain.errors import Conflict, InvalidRequest
from paddock.domain.message import Message, MessageState, Mode

K = AgentEventKind


def ended(exit_code, *events):
    verdict = Verdict()
    for kind, data in events:
        verdict.hear(AgentEvent(kind, data))
    return judged(verdict, exit_code)


def test_a_run_that_did_nothing_failed_whatever_its_exit_code():
    assert not ended(0).is_good
    assert "no output" in ended(0).why
    assert not ended(0, (K.STARTED, {}), (K.COMPLETED, {})).is_good


def test_a_run_is_good_when_it_did_something_and_said_that_it_was_done():
    done = ended(0, (K.TOOL_CALL, {"name": "write"}), (K.COMPLETED, {"text": "Written."}))
    assert (done.is_good, done.message) == (True, "Written.")
    assert ended(143, (K.MESSAGE, {"text": "Hello"}), (K.COMPLETED, {})).is_good


def test_one_that_stopped_in_the_middle_is_not():
    cut = ended(0, (K.MESSAGE, {"text": "I begin."}))
    assert (cut.is_good, cut.message) == (False, "I begin.")
    again = ended(0, (K.COMPLETED, {"text": "x"}), (K.TOOL_CALL, {}))
    assert not again.is_good


def test_an_error_is_one_unless_the_agent_went_on_to_its_end():
    failed = ended(0, (K.MESSAGE, {"text": "a"}), (K.ERROR, {"message": "401", "final": True}))
    assert (failed.is_good, failed.why) == (False, "401")
    retried = ended(
        0,
        (K.ERROR, {"message": "429", "final": True}),
        (K.MESSAGE, {"text": "a"}),
        (K.COMPLETED, {}),
    )
    assert retried.is_good
    assert ended(
        0, (K.ERROR, {"message": "x"}), (K.MESSAGE, {"text": "a"}), (K.COMPLETED, {})
    ).is_good


def message(**more):
    return Message("msg_1", "tem_1", "tsk_1", "stop", Mode.NOW, "me", 1.0, **more)


def test_a_message_comes_through_once():
    given = messages.delivered(message(), 2.0)
    done = messages.seen(given, 3.0)
    assert (done.state, done.delivered_at, done.seen_at) == (MessageState.SEEN, 2.0, 3.0)
    for again in (lambda: messages.delivered(given, 4.0), lambda: messages.given_up(done, "x")):
        with pytest.raises(Conflict):
            again()
    assert messages.given_up(message(), "its task ended").state is MessageState.UNDELIVERED


@pytest.mark.parametrize("text", ["", "  ", "a\0", "x" * (messages.LONGEST_MESSAGE + 1)])
def test_what_no_agent_can_be_told_is_refused(text):
    with pytest.raises(InvalidRequest):
        messages.check_text(text)
