"""What Codex says, read from lines that it wrote."""

import json
import tomllib

import pytest

from paddock.adapters.agents.codex import Codex
from paddock.domain.agent import ToolServer
from paddock.domain.agent_event import AgentEventKind as Kind
from paddock.domain.errors import InvalidRequest
from paddock.domain.message import Mode
from tests.adapters.agents.driving import message
from tests.adapters.agents.recorded import begun, brief, sample

CODEX = Codex()
THREAD = "01900000-0000-7000-8000-000000000001"
TURN = "01900000-0000-7000-8000-000000000002"
RUN = [
    # As if the message in the recorded run had been msg_1.
    line.replace(b'"clientId":null,"content":[{"type":"text","text":"please', _CLIENT)
    for _CLIENT in [b'"clientId":"msg_1","content":[{"type":"text","text":"please']
    for line in sample("codex-app_server")
]


def after(part: bytes) -> int:
    """The number of the line after the first with this in it."""
    return next(number for number, line in enumerate(RUN) if part in line) + 1


STEERABLE = after(b'"item/started","params":{"item":{"type":"commandExecution"')
COMPLETED = after(b'"method":"turn/completed"')
SECOND = RUN[after(b'{"id":6') :]
"""A turn that is broken off, and one that fails."""


def test_it_is_asked_in_order_and_the_prompt_follows_the_session():
    told = begun(CODEX)
    assert [said["method"] for said in told.said] == ["initialize", "initialized", "thread/start"]
    assert told.said[2]["params"] == {
        "approvalPolicy": "never",
        "sandbox": "danger-full-access",
        "cwd": "/workspace",
        "model": CODEX.traits.default_model,
    }
    told.hear(CODEX, RUN[:3])
    assert told.said[3]["params"] == {
        "threadId": THREAD,
        "clientUserMessageId": "prompt",
        "input": [{"type": "text", "text": "do the task", "text_elements": []}],
    }
    assert told.session == THREAD
    assert told.of(Kind.STARTED) == [{"version": "0.166.0", "model": "gpt-5.5", "session": THREAD}]


def test_a_run_with_a_message_becomes_events():
    told = begun(CODEX).hear(CODEX, RUN[:STEERABLE])
    told.then(CODEX.tell(told.talk, message("please also do X", Mode.NOW)))
    assert told.said[-1]["method"] == "turn/steer"
    assert told.said[-1]["params"]["expectedTurnId"] == TURN
    assert told.says[-1].message == "msg_1"
    told.hear(CODEX, RUN[STEERABLE : STEERABLE + 1])
    assert (told.delivered, told.seen) == (["msg_1"], [])
    told.hear(CODEX, RUN[STEERABLE + 1 : COMPLETED])
    assert (told.delivered, told.seen) == (["msg_1"], ["msg_1"])
    assert told.talk.is_over
    assert [event.kind for event in told.events] == [
        Kind.STARTED,
        Kind.MESSAGE,
        Kind.TOOL_CALL,
        Kind.TOOL_RESULT,
        Kind.USAGE,
        Kind.MESSAGE,
        Kind.TOOL_CALL,
        Kind.TOOL_RESULT,
        Kind.FILE_EDITED,
        Kind.USAGE,
        Kind.MESSAGE,
        Kind.COMPLETED,
    ]
    assert told.of(Kind.TOOL_CALL)[0] == {
        "id": "call_0001",
        "name": "shell",
        "input": {"command": "/bin/bash -lc 'sleep 2; echo A'", "cwd": "/workspace"},
    }
    assert told.of(Kind.TOOL_RESULT)[0] == {"id": "call_0001", "ok": True, "output": "A\n"}
    assert told.of(Kind.FILE_EDITED) == [
        {
            "path": "/workspace/x.txt",
            "kind": "add",
            "diff": "--- /dev/null\n+++ b/workspace/x.txt\n@@ -0,0 +1 @@\n+hey\n",
        }
    ]
    assert told.of(Kind.USAGE) == 2 * [
        {"input_tokens": 1000, "cached_tokens": 0, "output_tokens": 50, "reasoning_tokens": 0}
    ]
    assert told.of(Kind.COMPLETED) == [{"text": "step2", "ok": True}]
    assert CODEX.end(told.talk, 0, "").events == ()


def test_a_message_that_comes_too_late_for_its_turn_gets_one_of_its_own():
    told = begun(CODEX).hear(CODEX, RUN[: COMPLETED - 1])
    told.then(CODEX.tell(told.talk, message("too late", Mode.NOW)))
    asked = told.said[-1]
    told.hear(CODEX, [RUN[COMPLETED - 1]])
    assert not told.talk.is_over
    error = {"code": -32600, "message": "no active turn to steer"}
    told.hear(CODEX, [_line(id=asked["id"], error=error)])
    assert told.said[-1]["method"] == "turn/start"
    assert told.said[-1]["params"]["input"][0]["text"] == "too late"
    assert not told.delivered
    told.hear(CODEX, [_line(id=told.said[-1]["id"], result={}), *_turn("u2", "msg_1")])
    assert (told.delivered, told.seen) == (["msg_1"], ["msg_1"])
    assert told.talk.is_over


def test_a_message_that_a_broken_off_turn_had_taken_begins_the_next():
    told = begun(CODEX).hear(CODEX, RUN[:STEERABLE])
    told.then(CODEX.tell(told.talk, message("pebbles", Mode.NOW, "msg_1")))
    told.hear(CODEX, [_line(id=told.said[-1]["id"], result={"turnId": TURN})])
    told.then(CODEX.tell(told.talk, message("feathers", Mode.INTERRUPT, "msg_2")))
    assert told.said[-1]["method"] == "turn/interrupt"
    told.hear(CODEX, [_ended(TURN, "interrupted")])
    told.hear(CODEX, _turn("u2", "msg_1"))
    told.hear(CODEX, _turn("u3", "msg_2"))
    starts = [said["params"] for said in told.said if said["method"] == "turn/start"]
    assert [start["clientUserMessageId"] for start in starts] == ["prompt", "msg_1", "msg_2"]
    assert told.talk.is_over
    assert (told.delivered, told.seen) == (["msg_1", "msg_2"], ["msg_1", "msg_2"])
    assert [done["ok"] for done in told.of(Kind.COMPLETED)] == [False, True, True]


def test_messages_for_a_turn_of_their_own_wait_for_the_end_of_this_one():
    told = begun(CODEX).hear(CODEX, RUN[:STEERABLE])
    said = len(told.says)
    told.then(CODEX.tell(told.talk, message("and then Y", Mode.TURN)))
    assert len(told.says) == said
    told.hear(CODEX, RUN[STEERABLE:COMPLETED])
    assert told.said[-1]["params"]["clientUserMessageId"] == "msg_1"
    assert not told.talk.is_over


def test_before_the_turn_has_begun_nothing_can_be_broken_off():
    told = begun(CODEX)
    told.then(CODEX.tell(told.talk, message("do Z instead", Mode.INTERRUPT)))
    told.hear(CODEX, RUN[:5])
    assert [said["method"] for said in told.said[2:]] == ["thread/start", "turn/start"]
    told.hear(CODEX, RUN[5:7])
    assert told.said[-1]["method"] == "turn/interrupt"
    told.hear(CODEX, [_ended(TURN, "interrupted")])
    assert told.said[-1]["params"]["input"][0]["text"] == "do Z instead"
    told.hear(CODEX, [_started("u2")])
    # It is not this one that was to be broken off.
    assert told.said[-1]["method"] == "turn/start"


def test_an_interruption_that_nobody_wanted_and_a_refused_key_are_failures():
    told = begun(CODEX).hear(CODEX, RUN[:3]).hear(CODEX, SECOND)
    interrupted, refused = told.of(Kind.ERROR)
    assert interrupted == {"message": "the turn ended as interrupted", "final": True}
    assert refused["status"] == 401
    assert "401 Unauthorized" in refused["message"]
    (wait,) = told.of(Kind.WAITING)
    assert wait["why"].startswith("Reconnecting... 1/1: unexpected status 401")


def test_what_a_resumed_session_used_before_is_not_counted_again():
    told = begun(CODEX, brief(session=THREAD))
    assert told.said[2]["method"] == "thread/resume"
    assert told.said[2]["params"]["threadId"] == THREAD
    lines = sample("codex-app_server-resume")
    for number, line in enumerate(lines):
        lines[number] = line.replace(b'{"id":11,', b'{"id":2,')
    told.hear(CODEX, lines)
    assert [usage["input_tokens"] for usage in told.of(Kind.USAGE)] == [1000, 1000]


def test_a_session_that_is_not_there_is_a_failure():
    told = begun(CODEX, brief(session=THREAD))
    told.then(CODEX.tell(told.talk, message("hello", Mode.TURN)))
    told.hear(CODEX, [_line(id=2, error={"code": -32600, "message": "no rollout found"})])
    (error,) = told.of(Kind.ERROR)
    assert error == {"message": "codex has no session for this: no rollout found", "final": True}
    assert told.talk.is_over


@pytest.mark.parametrize("lines", [0, 3, 5, STEERABLE])
def test_a_stop_ends_it_wherever_it_is(lines):
    told = begun(CODEX).hear(CODEX, RUN[:lines])
    told.then(CODEX.tell(told.talk, message("never", Mode.TURN)))
    told.then(CODEX.stop(told.talk))
    if lines:
        assert not told.talk.is_over
        told.hear(CODEX, RUN[lines:7])
        assert told.said[-1]["method"] == "turn/interrupt"
        told.hear(CODEX, [_ended(TURN, "interrupted")])
    assert told.talk.is_over
    assert not told.of(Kind.ERROR)
    assert CODEX.end(told.talk, -15, "").events == ()


def test_it_is_answered_so_that_it_does_not_wait():
    told = begun(CODEX).hear(CODEX, sample("codex-app_server-approval"))
    told.hear(CODEX, [_line(id=7, method="item/tool/requestUserInput", params={})])
    replies = [said for said in told.said if "method" not in said]
    assert [reply["id"] for reply in replies] == [0, 1, 7]
    assert replies[0]["result"] == {"decision": "accept"}
    assert replies[2]["error"]["code"] == -32601


def test_what_helpers_of_the_agent_do_has_a_parent_and_ends_no_turn():
    told = begun(CODEX).hear(CODEX, RUN[:7])
    item = {"type": "agentMessage", "id": "m", "text": "hi"}
    other = {"threadId": "other", "turnId": "u"}
    told.hear(
        CODEX,
        [
            _line(method="item/completed", params={"item": item, **other}),
            _line(method="turn/completed", params={"turn": {"status": "completed"}, **other}),
        ],
    )
    assert told.of(Kind.MESSAGE) == [{"text": "hi", "parent": "other"}]
    assert not told.of(Kind.COMPLETED)
    assert not told.talk.is_over


def test_changes_of_files_that_were_there_have_their_pieces():
    changes = [
        {"path": "/w/a", "kind": {"type": "update"}, "diff": "@@ -1 +1 @@\n-a\n+b\n"},
        {"path": "/w/b", "kind": {"type": "delete"}, "diff": "gone\n"},
    ]
    item = {"type": "fileChange", "id": "c", "changes": changes, "status": "completed"}
    told = begun(CODEX).hear(CODEX, [_line(method="item/completed", params={"item": item})])
    assert [edit["diff"] for edit in told.of(Kind.FILE_EDITED)] == [
        "--- a/w/a\n+++ b/w/a\n@@ -1 +1 @@\n-a\n+b\n",
        "--- a/w/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n",
    ]
    declined = _line(method="item/completed", params={"item": {**item, "status": "declined"}})
    told = begun(CODEX).hear(CODEX, [declined])
    assert not told.of(Kind.FILE_EDITED)
    assert not told.of(Kind.TOOL_RESULT)[0]["ok"]


def test_its_settings_are_arguments():
    tricky = 'a"b\\c\n\x7f \N{SNOWMAN}\N{GRINNING FACE}'
    given = brief(
        routes={"openai": "http://broker/v1"},
        keys={"openai": "TEAM_KEY"},
        env={"CODEX_HOME": "/elsewhere", "LANG": "C"},
        tools=(ToolServer("e.cho", ("python3", tricky), {"A": "1"}), ToolServer("far", url="http://m")),
    )  # fmt: skip
    launch = CODEX.launch(given)
    assert launch.env == {"LANG": "C", "HOME": "/home/user"}
    settings = _settings(launch)
    assert settings["model_providers"]["paddock"] == {
        "name": "paddock",
        "base_url": "http://broker/v1",
        "wire_api": "responses",
        "env_key": "TEAM_KEY",
    }
    assert settings["mcp_servers"] == {
        "e.cho": {"command": "python3", "args": [tricky], "env": {"A": "1"}},
        "far": {"url": "http://m"},
    }
    assert not any(settings["features"].values())


def test_who_has_logged_in_needs_no_key():
    assert "model_provider" not in _settings(CODEX.launch(brief()))
    behind = _settings(CODEX.launch(brief(routes={"openai": "http://broker/v1"})))
    assert behind["model_providers"]["paddock"]["requires_openai_auth"]
    plain = _settings(CODEX.launch(brief(env={"OPENAI_API_KEY": "x"})))
    assert plain["model_providers"]["paddock"]["env_key"] == "OPENAI_API_KEY"


@pytest.mark.parametrize("given", [{"model": "-c"}, {"options": {"x": 1}}])
def test_what_can_never_work_is_refused(given):
    with pytest.raises(InvalidRequest):
        CODEX.check(brief(**given))


def _settings(launch):
    """As Codex reads them: each value is a piece of TOML."""
    flags = launch.argv[2:]
    assert set(flags[::2]) == {"-c"}
    return tomllib.loads("\n".join(flags[1::2]))


def _line(**members):
    return json.dumps(members).encode()


def _started(turn):
    return _line(method="turn/started", params={"threadId": THREAD, "turn": {"id": turn}})


def _ended(turn, status):
    ended = {"id": turn, "status": status, "items": []}
    return _line(method="turn/completed", params={"threadId": THREAD, "turn": ended})


def _turn(turn, client):
    """A turn that takes a message and does nothing else."""
    item = {"type": "userMessage", "clientId": client}
    taken = _line(method="item/started", params={"threadId": THREAD, "item": item})
    return [_started(turn), taken, _ended(turn, "completed")]
