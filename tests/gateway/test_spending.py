"""Money that is set aside: what a request may cost, who waits, and what is given back."""

import json
import time

import msgspec
import pytest

from paddock.domain.broker.metered import Cost, cost_of, has_output, model_in
from paddock.domain.broker.models import Dialect, Price, Tokens
from paddock.gateway.bounds import DEFAULT_OUTPUT, Doubled, Illegible, bound_of, check_single
from paddock.gateway.desk import Desk
from paddock.gateway.elsewhere import is_elsewhere
from paddock.gateway.ledger import Ledger, Reserved
from paddock.gateway.protocol import Credential


@pytest.mark.parametrize(
    ("said", "output"),
    [
        ({}, DEFAULT_OUTPUT),
        ({"max_tokens": 100}, 100),
        ({"max_tokens": "100"}, 100),
        ({"max_tokens": None, "max_completion_tokens": 7}, 7),
        ({"max_tokens": 5, "max_completion_tokens": 7}, 7),
        ({"max_output_tokens": 9}, 9),
        ({"max_tokens": 100, "n": 3}, 300),
        ({"generationConfig": {"maxOutputTokens": 11, "candidateCount": 2}}, 22),
        ({"generation_config": {"max_output_tokens": 12}}, 12),
        ({"max_tokens": -4}, DEFAULT_OUTPUT),
        ({"max_tokens": [1]}, DEFAULT_OUTPUT),
        ({"max_tokens": int("9" * 401)}, 1 << 40),
        ({"max_tokens": "9" * 401}, 1 << 40),
        ({"max_tokens": -int("9" * 401)}, DEFAULT_OUTPUT),
        ({"messages": [{"max_tokens": 1}]}, DEFAULT_OUTPUT),
    ],
)
def test_a_request_says_what_it_may_take(said: dict, output: int):
    body = json.dumps({"model": "m", **said}).encode()
    bound = bound_of(body)
    assert (bound.model, bound.tokens.output) == ("m", output)
    assert bound.tokens.input == -(-len(body) // 3)
    assert bound.cost(Price(1, 10, 0, 2)) == pytest.approx(
        (bound.tokens.input * 2 + output * 10) / 1e6
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"max_tokens": 9, "max_tokens": 1}',
        b'{"model": "dear", "n": 1, "model": "cheap"}',
        b'{"stream": true, "\\u0073tream": false}',
        b'{"generationConfig": {"maxOutputTokens": 9, "maxOutputTokens": 1}}',
        b'{"a":{"b":[1, {"c": "}"}]} , "n" :2,"n":2}',
        b'{"n": 1.5, "\\u006e": 1, "a": 2}',
        b'{"stream_options": {"include_usage": true, "include_usage": false}}',
        b"{" + b'"a": 1, ' * 200_000 + b'"b": 1}',
    ],
)
def test_what_is_said_twice_is_not_judged_by_one_of_the_two(body: bytes):
    with pytest.raises(Doubled, match="stands twice"):
        check_single(body)


def test_the_same_name_in_different_objects_is_said_once():
    check_single(b"")
    check_single(b'{"model": "m", "n": 1, "tools": [{"model": 1}, {"model": 2}], "x": {"n": 2}}')
    check_single(b' { "a" : "\\"n\\": 1" ,\n"n":1.50, "b": {}, "": null } ')


def test_a_large_request_is_gone_through_quickly():
    """By the processor's time: nothing else of the gateway goes on meanwhile."""
    body = b'{"messages": [' + b"{}," * 4_000_000 + b'{}], "n": 1}'
    began = time.process_time()
    check_single(body)
    assert time.process_time() - began < 1


def test_what_cannot_be_read_has_no_bound():
    for body in (b"[]", b"x", b'{"a": \xff}', b"[" * 100_000, b'{"max_tokens": 1e999}'):
        with pytest.raises(Illegible):
            bound_of(body)
    assert bound_of(b"{}", outputs=False).tokens == Tokens(input=1)
    assert bound_of(b'{"background": true}', named="x").in_background
    for body in (b"x", b'{"a": \xff}', b"[" * 100_000):
        with pytest.raises(Illegible):
            check_single(body)


@pytest.mark.parametrize(
    ("dialect", "line", "cost"),
    [
        ("anthropic", "POST /v1/messages", Cost.COUNTED),
        ("anthropic", "POST /v1/messages/count_tokens", Cost.FREE),
        ("anthropic", "POST /v1/messages/batches", Cost.UNKNOWN),
        ("anthropic", "GET /v1/messages/batches/b/results", Cost.FREE),
        ("anthropic", "POST /v1/messages/", Cost.UNKNOWN),
        ("openai", "POST /v1/chat/completions", Cost.COUNTED),
        ("openai", "POST /api/v1/chat/completions", Cost.COUNTED),
        ("openai", "POST /openai/deployments/gpt-5-mini/chat/completions", Cost.COUNTED),
        ("openai", "POST /v1/responses", Cost.COUNTED),
        ("openai", "POST /v1/responses/compact", Cost.COUNTED),
        ("openai", "POST /v1/responses/r1/cancel", Cost.FREE),
        ("openai", "GET /v1/models", Cost.FREE),
        ("openai", "POST /v1/batches", Cost.UNKNOWN),
        ("openai", "POST /v1/images/generations", Cost.UNKNOWN),
        ("openai", "POST /v1/fine_tuning/jobs", Cost.UNKNOWN),
        ("openai", "PUT /v1/responses", Cost.COUNTED),
        ("gemini", "POST /v1beta/models/g:generateContent", Cost.COUNTED),
        ("gemini", "POST /v1beta/models/g:countTokens", Cost.FREE),
        ("gemini", "POST /v1beta/models/g:batchGenerateContent", Cost.UNKNOWN),
        ("gemini", "POST /v1beta/models/g%3AgenerateContent", Cost.UNKNOWN),
        ("gemini", "POST /v1beta/cachedContents", Cost.UNKNOWN),
    ],
)
def test_what_costs_is_told_by_its_path(dialect: str, line: str, cost: Cost):
    assert cost_of(Dialect(dialect), *line.split()) is cost


def test_only_what_ends_as_an_embedding_has_no_output():
    for path in ("/v1/embeddings", "/v1beta/models/g:embedContent"):
        assert not has_output(path)
    for path in ("/v1/embeddings/chat/completions", "/v1/models/a:embedContent/x:generateContent"):
        assert has_output(path)
    assert model_in("/v1beta/models/gemini-x:generateContent") == "gemini-x"
    assert model_in("/v1/models/cheap/chat/completions") == ""


TOOL = {"properties": {name: {"type": "string"} for name in ("url", "prompt", "file_id")}}
CALL = {"type": "tool_use", "input": {"url": "https://a.example"}}
TEXT = '{"file_id": "x", "image_url": "https://a", "type": "web_search"}, \\u0041, \\\\u0041'


@pytest.mark.parametrize(
    ("dialect", "said", "elsewhere"),
    [
        ("openai", {"previous_response_id": "r"}, True),
        ("openai", {"previous_response_id": None, "conversation": None, "plugins": []}, False),
        ("openai", {"conversation": {"id": "c"}}, True),
        ("openai", {"prompt": {"id": "p"}}, True),
        ("openai", {"prompt": "once upon a time"}, False),
        ("openai", {"messages": [{"content": TEXT}]}, False),
        ("openai", {"tools": [{"type": "function", "parameters": TOOL}]}, False),
        ("openai", {"tools": [{"type": "web_search"}]}, True),
        ("openai", {"input": [{"type": "item_reference", "id": "i"}]}, True),
        ("openai", {"input": [{"content": [{"image_url": "data:image/png;base64,AA"}]}]}, False),
        ("openai", {"input": [{"content": [{"file_url": "https://a.example"}]}]}, True),
        ("openai", {"messages": [{"content": [{"image_url": {"url": "http://a"}}]}]}, True),
        ("openai", {"messages": [{"content": [{"file": {"file_id": "f"}}]}]}, True),
        ("anthropic", {"messages": [{"content": [CALL]}], "tools": [TOOL]}, False),
        ("anthropic", {"messages": [{"source": {"type": "url", "url": "https://a"}}]}, True),
        ("anthropic", {"messages": [{"source": {"type": "file", "file_id": "f"}}]}, True),
        ("anthropic", {"tools": [{"type": "web_search_20250305"}]}, True),
        ("gemini", {"cachedContent": "c"}, True),
        ("gemini", {"contents": [{"parts": [{"fileData": {"fileUri": "u"}}]}]}, True),
        ("gemini", {"tools": [{"googleSearch": {}}]}, True),
        ("gemini", {"contents": [{"parts": [{"functionCall": {"args": CALL}}]}]}, False),
    ],
)
def test_input_that_is_not_in_the_request_is_noticed(dialect: str, said: dict, elsewhere: bool):
    for indent in (None, 2):
        body = json.dumps({"model": "m", **said}, indent=indent).encode()
        assert is_elsewhere(Dialect(dialect), body) is elsewhere


def test_a_key_cannot_be_hidden_by_its_spelling():
    for body in (b'{"previous\\u005fresponse_id": "r"}', b'{"a": [{"\\u0066ile_id": "f"}]}'):
        assert is_elsewhere(Dialect.OPENAI, body)
    assert not is_elsewhere(Dialect.OPENAI, b'{"a": "\\u001b[0m \\u00e9 \\u003c"}')


def test_what_is_under_way_counts_until_it_is_settled():
    ledger = Ledger()
    first = ledger.reserve("a", 1.0, 0.7)
    assert first is not None
    assert ledger.reserve("a", 1.0, 0.4) is None
    second = ledger.reserve("a", 1.0, 0.3)
    assert second is not None
    assert ledger.reserve("b", 1.0, 5.0) is not None, "alone, it is let go by"
    assert ledger.reserve("a", None, 50.0) is not None, "without a limit nothing is in the way"
    ledger.settle(first, 0.1)
    assert (ledger.spent("a"), ledger.reserved("a")) == (0.1, 50.3)
    ledger.settle(second, 0.0)
    assert ledger.spent("a") == 0.1


def test_those_that_wait_go_on_in_their_order_and_hear_when_all_is_spent():
    ledger = Ledger()
    told: list[tuple[str, Reserved | None]] = []
    first = ledger.reserve("a", 1.0, 0.9)
    assert first is not None
    for name, most in (("large", 0.8), ("small", 0.05), ("gone", 0.05), ("last", 0.9)):
        stop = ledger.wait("a", 1.0, most, lambda got, name=name: told.append((name, got)))
        if name == "gone":
            stop()
    assert ledger.reserve("a", 1.0, 0.01) is None, "nobody overtakes"
    ledger.settle(first, 0.1)
    assert [name for name, _ in told] == ["large", "small"]
    for _, reserved in list(told):
        assert reserved is not None
        ledger.settle(reserved, 0.5)
    assert told[-1] == ("last", None)
    assert (ledger.spent("a"), ledger.reserved("a")) == (pytest.approx(1.1), 0)
    assert ledger.reserve("a", 1.0, 0.0) is None


def test_what_is_spent_is_not_forgotten_while_a_sandbox_has_the_account():
    ledger = Ledger()
    desks = [Desk(), Desk()]
    route = Credential("K", "", ["a.example"], "model", route="own", account="t/task 1", spent=9.99)
    for desk in desks:
        desk.ledger = ledger
        desk.take([route], "m")

    def others() -> None:
        for number in range(10_001):
            ledger.know(f"t/{number}", 0.5)

    others()
    assert ledger.spent("t/task 1") == 9.99
    desks[0].take([], "")
    desks[0].close()
    others()
    assert ledger.spent("t/task 1") == 9.99, "another one has it still"
    desks[1].close()
    assert ledger.spent("t/task 1") == 9.99
    desks[1].take([msgspec.structs.replace(route, spent=1.0)], "n")
    assert ledger.spent("t/task 1") == 9.99, "what is known here may be newer"
    desks[1].close()
    others()
    assert ledger.spent("t/task 1") == 0, "nobody has it, so it is told anew"
    assert len(ledger._past) == 10_000
