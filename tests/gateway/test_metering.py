"""Tokens counted in the four dialects, whole and streamed, however the stream is cut."""

import json
from dataclasses import replace

import pytest

from paddock.domain.broker.models import DEAR, Dialect, Price, Prices, Tokens
from paddock.gateway.ledger import Ledger
from paddock.gateway.metering import Meter

ANTHROPIC = {
    "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "hi"}],
    "usage": {
        "input_tokens": 100,
        "output_tokens": 50,
        "cache_read_input_tokens": 400,
        "cache_creation_input_tokens": 20,
    },
}
CHAT = {
    "model": "gpt-5-mini",
    "choices": [],
    "usage": {
        "prompt_tokens": 500,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 400},
        "completion_tokens_details": {"reasoning_tokens": 20},
    },
}
RESPONSES = {
    "model": "gpt-5",
    "output": [],
    "usage": {
        "input_tokens": 500,
        "output_tokens": 50,
        "input_tokens_details": {"cached_tokens": 400},
        "output_tokens_details": {"reasoning_tokens": 20},
    },
}
GEMINI = {
    "modelVersion": "gemini-2.5-pro",
    "usageMetadata": {
        "promptTokenCount": 500,
        "cachedContentTokenCount": 400,
        "candidatesTokenCount": 30,
        "thoughtsTokenCount": 20,
    },
}
TOOK = Tokens(input=100, output=50, cache_read=400, reasoning=20)


def metered(
    dialect: Dialect, data: bytes, *, streamed: bool, step: int, asked: int = 0
) -> tuple[str, Tokens, bool]:
    told = []
    meter = Meter(dialect, lambda *each: told.append(each), streamed=streamed, asked=asked)
    for at in range(0, len(data), step):
        meter.feed(data[at : at + step])
    meter.end()
    meter.end()
    (once,) = told
    return once


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("dialect", "answer", "tokens"),
    [
        (Dialect.ANTHROPIC, ANTHROPIC, Tokens(100, 50, 400, 20)),
        (Dialect.OPENAI, CHAT, TOOK),
        (Dialect.OPENAI, RESPONSES, TOOK),
        (Dialect.GEMINI, GEMINI, TOOK),
        (Dialect.GEMINI, [{"usageMetadata": {"promptTokenCount": 1}}, GEMINI], TOOK),
    ],
)
def test_an_answer_that_comes_whole(dialect: Dialect, answer: object, tokens: Tokens, step: int):
    said = json.dumps(answer, indent=1).encode()
    model, found, guessed = metered(dialect, said, streamed=False, step=step)
    assert (found, guessed) == (tokens, False)
    assert model.startswith(("claude", "gpt-5", "gemini"))


def events(*said: object) -> bytes:
    return b"".join(
        b"event: x\r\ndata: " + json.dumps(each).encode() + b"\r\n\r\n" for each in said
    )


STREAMS = {
    "anthropic": (
        Dialect.ANTHROPIC,
        events(
            {
                "type": "message_start",
                "message": {
                    "model": "claude-x",
                    "usage": {
                        "input_tokens": 100,
                        "cache_read_input_tokens": 400,
                        "output_tokens": 1,
                    },
                },
            },
            {"type": "content_block_delta", "delta": {"text": 'say "usage" and \n'}},
            {"type": "message_delta", "usage": {"output_tokens": 50}},
            {"type": "message_stop"},
        ),
    ),
    "chat": (
        Dialect.OPENAI,
        events(
            {"model": "gpt-5-mini", "choices": [{"delta": {"content": "hi"}}], "usage": None},
            {"model": "gpt-5-mini", "choices": [], "usage": CHAT["usage"]},
        )
        + b"data: [DONE]\n\n",
    ),
    "responses": (
        Dialect.OPENAI,
        events(
            {"type": "response.created", "response": {"model": "gpt-5", "usage": None}},
            {"type": "response.output_text.delta", "delta": "hi"},
            {"type": "response.completed", "response": RESPONSES},
        ),
    ),
    "gemini": (
        Dialect.GEMINI,
        events(
            {"modelVersion": "gemini-x", "usageMetadata": {"promptTokenCount": 500}},
            GEMINI,
        ),
    ),
}


@pytest.mark.parametrize("step", [1, 13, 1 << 20])
@pytest.mark.parametrize("name", STREAMS)
def test_an_answer_that_streams(name: str, step: int):
    dialect, said = STREAMS[name]
    model, found, guessed = metered(dialect, said, streamed=True, step=step)
    took = replace(TOOK, reasoning=0) if dialect is Dialect.ANTHROPIC else TOOK
    assert (found, guessed) == (took, False)
    assert model.startswith(("claude", "gpt-5", "gemini"))


@pytest.mark.proves("R5")
def test_what_was_thought_is_output_and_is_paid_for_once():
    took = DEAR.cost(Tokens(output=100))
    assert DEAR.cost(Tokens(output=100, reasoning=60)) == took
    assert Tokens(output=1, reasoning=1) + Tokens(output=2, reasoning=1) == Tokens(0, 3, 0, 0, 2)
    # Whoever counts it beside the output, or says nonsense, changes no sum by that.
    usage = {"input_tokens": 1, "output_tokens": 5, "output_tokens_details": {}}
    usage["output_tokens_details"] = {"reasoning_tokens": 9}
    said = json.dumps({"model": "m", "usage": usage}).encode()
    for dialect in (Dialect.OPENAI, Dialect.ANTHROPIC):
        _, found, _ = metered(dialect, said, streamed=False, step=100)
        assert found == Tokens(input=1, output=5, reasoning=5)


def test_what_is_not_said_is_guessed():
    chunks = events(*({"model": "local", "choices": [{"delta": {"content": "x"}}]},) * 9)
    said = metered(Dialect.OPENAI, chunks, streamed=True, step=50, asked=400)
    assert said == ("local", Tokens(input=100, output=9), True)


def test_an_answer_that_was_cut_short_counts_by_what_has_come():
    usage = {"input_tokens": 100, "output_tokens": 1}
    start = {"type": "message_start", "message": {"model": "claude-x", "usage": usage}}
    pieces = ({"type": "content_block_delta", "delta": {"text": "a word"}},) * 30
    said = metered(Dialect.ANTHROPIC, events(start, *pieces), streamed=True, step=50)
    assert said == ("claude-x", Tokens(input=100, output=31), True)
    end = {"type": "message_delta", "usage": {"output_tokens": 12}}
    whole = metered(Dialect.ANTHROPIC, events(start, *pieces, end), streamed=True, step=50)
    assert whole == ("claude-x", Tokens(input=100, output=12), False)


def cut(dialect: Dialect, data: bytes, *, streamed: bool = True, strict: bool = True) -> Tokens:
    told: list[Tokens] = []
    meter = Meter(
        dialect,
        lambda _model, tokens, guessed: told.append(tokens) if guessed else None,
        streamed=streamed,
        most=Tokens(input=700, output=900),
        strict=strict,
    )
    meter.feed(data)
    meter.cut()
    (once,) = told
    return once


def test_where_a_limit_is_kept_an_answer_without_its_end_counts_as_all_that_it_might_be():
    pieces = events(*({"model": "local", "choices": [{"delta": {"content": "x"}}]},) * 9)
    assert cut(Dialect.OPENAI, pieces) == Tokens(input=700, output=900)
    assert cut(Dialect.OPENAI, pieces, strict=False).output == 9
    usage = {"input_tokens": 100, "cache_read_input_tokens": 400, "output_tokens": 1}
    start = {"type": "message_start", "message": {"model": "claude-x", "usage": usage}}
    assert cut(Dialect.ANTHROPIC, events(start)) == Tokens(100, 900, 400)
    # Gemini counts in every piece; only the last says that it is one.
    piece = {"modelVersion": "g", "usageMetadata": {"promptTokenCount": 5, "thoughtsTokenCount": 1}}
    assert cut(Dialect.GEMINI, events(piece, piece)) == Tokens(5, 900, reasoning=1)
    whole = json.dumps([piece, piece]).encode()
    assert cut(Dialect.GEMINI, whole[:-1], streamed=False) == Tokens(5, 900, reasoning=1)
    last = {**piece, "candidates": [{"finishReason": "STOP"}]}
    with pytest.raises(ValueError, match="not enough"):
        cut(Dialect.GEMINI, events(piece, last))


def test_a_long_answer_is_counted_by_its_end_and_not_kept():
    said = b'{"content": "' + b"x" * (3 << 20) + b'", "usage": {"prompt_tokens": 3}}'
    _, found, guessed = metered(Dialect.OPENAI, said, streamed=False, step=65536)
    assert (found, guessed) == (Tokens(input=3), False)


@pytest.mark.parametrize(
    ("model", "entry"),
    [
        ("gpt-5", "gpt-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-latest", "gpt-5"),
        ("openai/gpt-5-mini", "gpt-5-mini"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("gpt-5.2-pro", ""),
        ("gpt-5-pro", ""),
        ("gpt-5-mini-2026", ""),
        ("gpt-5-2025-08-07-pro", ""),
        ("claude-opus-4-55", ""),
        ("*", ""),
    ],
)
def test_a_price_is_of_that_model_and_its_editions_only(model: str, entry: str):
    table = {name: Price(n, n, n, n) for n, name in enumerate(("gpt-5", "gpt-5-mini"), 1)}
    prices = Prices({**table, "claude-opus-4-5": Price(3, 3, 3, 3), "*": DEAR})
    assert prices.of(model) == (prices.table[entry] if entry else DEAR)
    assert prices.knows(model) is bool(entry)


def test_what_has_no_price_is_dear_and_accounts_add_up():
    ledger = Ledger()
    dear, cheap = Price(10, 20, 1, 12), Price(1, 2, 0.1, 1)
    ledger.prices = Prices({"gpt-5": dear, "gpt-5-mini": cheap, "*": dear})
    assert ledger.prices.of("unheard-of") == dear
    without = Prices({"gpt-5": cheap})
    assert without.of("unheard-of") == DEAR, "what has no price does not pass a limit by that"
    assert Prices().of("").cost(TOOK) > 0
    assert ledger.charge("a", "gpt-5", Tokens(1_000_000, 1_000_000, 1_000_000, 1_000_000)) == 43
    ledger.know("a", 40)
    assert ledger.spent("a") == 43
    ledger.know("a", 50)
    assert (ledger.spent("a"), ledger.spent("b")) == (50, 0)
