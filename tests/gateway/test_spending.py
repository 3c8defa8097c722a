"""Money that is set aside: what a request may cost, who waits, and what is given back."""

import json

import pytest

from paddock.domain.broker.metered import Cost, cost_of
from paddock.domain.broker.models import Dialect, Price, Tokens
from paddock.gateway.bounds import DEFAULT_OUTPUT, Illegible, bound_of
from paddock.gateway.ledger import Ledger, Reserved

pytestmark = pytest.mark.proves("K5")


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


def test_what_cannot_be_read_has_no_bound():
    for body in (b"[]", b"x", b'{"a": \xff}', b"[" * 100_000, b'{"max_tokens": 1e999}'):
        with pytest.raises(Illegible):
            bound_of(body)
    assert bound_of(b"{}", outputs=False).tokens == Tokens(input=1)
    assert bound_of(b'{"background": true}', named="x").in_background


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
