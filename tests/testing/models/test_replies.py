"""Replies have the shapes that real agents were seen to understand."""

import json
import re
from dataclasses import replace

import pytest

from paddock.testing.models import Fail, Usage
from paddock.testing.models.conversation import Asked
from paddock.testing.models.dialects import ANTHROPIC, CHAT, GEMINI, RESPONSES
from paddock.testing.models.reply import Reply, ToolCall, pieces
from tests.testing.models.recorded import events, parsed, reply

USAGE = Usage(input=1000, output=50, cache_read=400, cache_write=100, reasoning=20)
SAID = "I will create hello.txt."
PATCH = "*** Begin Patch\n*** Add File: hello.txt\n+hi\n*** End Patch\n"
CASES = {
    "anthropic-messages": (
        ANTHROPIC,
        "claude-sonnet-4-5",
        ToolCall("Write", {"file_path": "hello.txt", "content": "hi"}),
        ToolCall("Bash", {"command": "cat hello.txt"}),
    ),
    "openai-responses": (
        RESPONSES,
        "gpt-5.5",
        ToolCall("apply_patch", PATCH),
        ToolCall("exec_command", {"cmd": "cat hello.txt"}),
    ),
    "openai-chat": (
        CHAT,
        "scripted",
        ToolCall("write", {"filePath": "hello.txt", "content": "hi"}),
        ToolCall("bash", {"command": "cat hello.txt"}),
    ),
    "gemini-generatecontent": (
        GEMINI,
        "gemini-2.5-pro",
        ToolCall("write_file", {"file_path": "hello.txt", "content": "hi"}),
        ToolCall("run_shell_command", {"command": "cat hello.txt"}),
    ),
}


def case(name):
    dialect, model, *calls = CASES[name]
    # The recorded chat reply has no thoughts: the API has no official place for them.
    thinking = "" if dialect is CHAT else "Plan the edit."
    return dialect, Reply(model, SAID, thinking, tuple(calls), USAGE, created=1767297940)


def neutral(value):
    """Item ids number items of each kind in the recordings, and all calls here."""
    return json.loads(re.sub(r'"(fc|ctc)_\d+"', r'"\1_"', json.dumps(value)))


def sent(dialect, answer, asked=None):
    asked = asked or Asked(answer.model, ())
    stream = b"".join(event.encoded() for event in dialect.events(answer, asked))
    return parsed(stream.decode())


@pytest.mark.parametrize("name", CASES)
def test_a_reply_at_once_is_the_recorded_one(name):
    dialect, answer = case(name)
    assert neutral(dialect.whole(answer)) == neutral(reply(name))


@pytest.mark.parametrize("name", CASES)
def test_a_streamed_reply_is_the_recorded_one_event_by_event(name):
    dialect, answer = case(name)
    made, recorded = neutral(sent(dialect, answer)), neutral(events(name))
    assert joined(made) == joined(recorded)
    if dialect is not CHAT:
        assert made == recorded


def joined(stream):
    """Where a text is split is nobody's promise: deltas of one call are put together."""
    found = []
    for name, data in stream:
        piece = function_piece(data)
        if piece is not None and found and function_piece(found[-1][1]) is not None:
            found[-1][1]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] += piece
        else:
            found.append([name, json.loads(json.dumps(data))])
    return found


def function_piece(data):
    match data:
        case {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": str(text)}}]}}]}:
            call = data["choices"][0]["delta"]["tool_calls"][0]
            return None if "id" in call else text
    return None


@pytest.mark.parametrize("name", CASES)
def test_a_reply_without_calls_says_that_the_turn_is_over(name):
    dialect, answer = case(name)
    answer = replace(answer, calls=())
    ends = {
        "anthropic": '"stop_reason": "end_turn"',
        "responses": '"status": "completed"',
        "chat": '"finish_reason": "stop"',
        "gemini": '"finishReason": "STOP"',
    }
    assert ends[dialect.name] in json.dumps(dialect.whole(answer))
    assert ends[dialect.name] in json.dumps(sent(dialect, answer))
    assert "tool_use" not in json.dumps(sent(dialect, answer))


def test_thoughts_in_chat_go_where_servers_of_thinking_models_put_them():
    answer = Reply("m", "Done.", "Hm.")
    assert CHAT.whole(answer)["choices"][0]["message"]["reasoning_content"] == "Hm."
    assert '"reasoning_content": "Hm."' in json.dumps(sent(CHAT, answer))


def test_chat_tells_usage_of_a_stream_only_to_who_asked_for_it():
    answer = Reply("m", "Done.")
    silent = sent(CHAT, answer, Asked("m", (), wants_usage=False))
    assert not [data for _, data in silent if "usage" in data]


@pytest.mark.parametrize(
    ("dialect", "status", "body"),
    [
        (
            ANTHROPIC,
            529,
            {
                "type": "error",
                "error": {"type": "overloaded_error", "message": "busy"},
                "request_id": "r1",
            },
        ),
        (
            RESPONSES,
            429,
            {
                "error": {
                    "message": "busy",
                    "type": "rate_limit_error",
                    "param": None,
                    "code": "rate_limit_exceeded",
                }
            },
        ),
        (
            CHAT,
            500,
            {"error": {"message": "busy", "type": "server_error", "param": None, "code": None}},
        ),
        (GEMINI, 429, {"error": {"code": 429, "message": "busy", "status": "RESOURCE_EXHAUSTED"}}),
    ],
    ids=["anthropic", "responses", "chat", "gemini"],
)
def test_a_failure_has_the_shape_of_the_api(dialect, status, body):
    assert dialect.error(Fail(status, "busy"), "r1") == body


def test_ids_differ_between_the_replies_and_calls_of_a_conversation():
    calls = (ToolCall("a", {}), ToolCall("b", {}))
    first = Reply("m", "x", calls=calls, salt="ab", number=1, call_number=1)
    second = replace(first, number=2, call_number=3)
    ids = [number for answer in (first, second) for number, _ in answer.numbered_calls()]
    assert len(set(ids)) == 4
    assert first.id != second.id


@pytest.mark.parametrize("length", [0, 1, 24, 25, 2_000_000])
def test_pieces_are_the_text_and_few(length):
    found = list(pieces("ä" * length))
    assert "".join(found) == "ä" * length
    assert len(found) <= 64
