"""JSON-RPC over lines."""

import json

import pytest

from paddock.adapters.agents.rpc import Answer, Asked, Calls, Notice, heard


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"id":0,"method":"may/i","params":{"a":1}}', Asked(0, "may/i", {"a": 1})),
        (b'{"method":"by/the/way"}', Notice("by/the/way", {})),
        (b'{"id":"x","result":[1]}', Answer("x", [1])),
        (b'{"id":1,"result":null}', Answer(1)),
        (b'{"id":1,"error":{"code":-1}}', Answer(1, error={"code": -1})),
        (b'{"id":1,"error":"no"}', Answer(1, error={"message": "no"})),
        (b'{"id":true,"result":1}', None),
        (b'{"id":[],"result":1}', None),
        (b'{"result":1}', None),
        (b"hello", None),
    ],
)
def test_what_they_say_is_told_apart_by_its_method(line, expected):
    assert heard(line) == expected


def test_an_answer_comes_back_with_what_it_is_about():
    calls, line = Calls(version="2.0").ask("do/it", {"x": 1}, {"message": "msg_1"})
    assert json.loads(line) == {"jsonrpc": "2.0", "id": 1, "method": "do/it", "params": {"x": 1}}
    calls, second = calls.ask("again", {}, "again")
    assert json.loads(second)["id"] == 2
    kept = Calls.of(json.loads(json.dumps(calls.kept())), "2.0")
    assert kept == calls
    rest, about = kept.answered(Answer(1, {}))
    assert about == {"message": "msg_1"}
    assert rest.answered(Answer(1, {}))[1] is None
    assert rest.answered(Answer(2, {}))[1] == "again"


def test_what_they_ask_is_answered_under_their_id():
    calls, asked = Calls(), Asked("q", "may/i", {})
    assert json.loads(calls.answer(asked, {"ok": True})) == {"id": "q", "result": {"ok": True}}
    assert json.loads(calls.refuse(asked)) == {
        "id": "q",
        "error": {"code": -32601, "message": "may/i is not known here"},
    }
    assert json.loads(calls.tell("hello")) == {"method": "hello"}
