"""Gemini CLI: what it printed, and how its runs follow one another."""

import json

import pytest

from paddock.adapters.agents.gemini import Gemini
from paddock.domain.agent import Door
from paddock.domain.agent_event import AgentEventKind as Kind
from paddock.domain.errors import InvalidRequest
from paddock.domain.message import Mode
from tests.adapters.agents.driving import message
from tests.adapters.agents.recorded import begun, brief, played, sample

GEMINI = Gemini()


def test_what_it_prints_becomes_events():
    told = played(GEMINI, "gemini-edit")
    assert told.of(Kind.MESSAGE) == [
        {"text": "I will create hello.txt."},
        {"text": "Created hello.txt."},
    ]
    assert told.of(Kind.TOOL_CALL)[0]["input"] == {"file_path": "hello.txt", "content": "hi"}
    assert told.of(Kind.FILE_EDITED) == [{"path": "hello.txt", "kind": "update", "diff": ""}]
    assert told.of(Kind.USAGE) == [
        {"input_tokens": 2000, "cached_tokens": 0, "output_tokens": 100, "reasoning_tokens": 0}
    ]
    assert told.of(Kind.COMPLETED) == [{"text": "Created hello.txt.", "ok": True}]
    assert told.session.endswith("001")
    assert told.talk.is_over


def test_thoughts_count_as_output():
    told = played(GEMINI, "gemini-shell-usage")
    assert told.of(Kind.USAGE) == [
        {"input_tokens": 2000, "cached_tokens": 800, "output_tokens": 140, "reasoning_tokens": 40}
    ]


def test_failures_say_the_status_of_the_model():
    told = played(GEMINI, "gemini-collection")
    errors = [error for error in told.of(Kind.ERROR) if error["final"]]
    assert [error.get("status") for error in errors] == [401, 400, None, None]
    assert not any(result["ok"] for result in told.of(Kind.TOOL_RESULT)[:3])


def test_a_session_can_be_gone_on_with_once_the_model_has_answered():
    lines = sample("gemini-edit")
    assert not begun(GEMINI).hear(GEMINI, lines[:2]).session
    assert begun(GEMINI).hear(GEMINI, lines[:3]).session


@pytest.mark.parametrize("mode", [Mode.NOW, Mode.TURN])
def test_messages_are_put_into_its_inbox(mode):
    told = begun(GEMINI).hear(GEMINI, sample("gemini-edit")[:4])
    (say,) = GEMINI.tell(told.talk, message("and X", mode)).says
    assert (say.door, say.message) == (Door.INBOX, "msg_1")
    assert json.loads(say.data) == {"id": "msg_1", "mode": mode.value, "text": "and X"}


def test_a_message_is_seen_in_what_follows_the_tool_after_which_it_was_taken():
    lines = sample("gemini-edit")
    told = begun(GEMINI).hear(GEMINI, lines[:4])
    told.then(GEMINI.tell(told.talk, message("and X", Mode.NOW)))
    told.then(GEMINI.taken(told.talk, "msg_1"))
    told.then(GEMINI.taken(told.talk, "msg_unheard_of"))
    told.hear(GEMINI, lines[4:5])
    assert not told.seen
    told.hear(GEMINI, lines[5:])
    assert told.seen == ["msg_1"]


def test_a_message_that_nobody_took_is_not_seen():
    told = begun(GEMINI).hear(GEMINI, sample("gemini-edit")[:4])
    told.then(GEMINI.tell(told.talk, message("and X", Mode.NOW)))
    told.hear(GEMINI, sample("gemini-edit")[4:])
    assert not told.seen


def test_interruptions_end_it_and_are_the_prompt_of_the_next_run():
    told = begun(GEMINI).hear(GEMINI, sample("gemini-edit")[:4])
    told.then(GEMINI.tell(told.talk, message("stop", Mode.INTERRUPT)))
    assert told.talk.must_stop
    told.then(GEMINI.tell(told.talk, message("and Y", Mode.NOW, "msg_2")))
    assert told.talk.then == "stop\n\nand Y"
    assert told.delivered == ["msg_1", "msg_2"]
    told.then(GEMINI.end(told.talk, None, "killed"))
    assert not told.of(Kind.ERROR)


def test_a_stop_is_by_force():
    talk = GEMINI.stop(begun(GEMINI).talk)
    assert talk.must_stop
    assert not GEMINI.tell(talk, message("X", Mode.NOW)).says


def test_its_key_has_one_name_only():
    with pytest.raises(InvalidRequest) as refused:
        GEMINI.check(brief(keys={"gemini": "OTHER"}))
    assert "GEMINI_API_KEY" in refused.value.remediation
