"""What a request to a model may take at most, as far as it says so itself."""

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paddock.domain.broker.models import Price, Tokens

DEFAULT_OUTPUT = 32_000
"""Tokens of an answer that the request sets no bound to."""
BYTES_PER_TOKEN = 3
"""Of a request: code and prose have more, so what is set aside is rather too much."""
_MOST_TOKENS = 1 << 40
_SHOWN = 80


class Illegible(Exception):
    """What is not JSON, or no object."""


class Doubled(Illegible):
    """A name stands twice in one object: servers differ in which of them they go by."""


class _Said(msgspec.Struct):
    model: Any = ""
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = 1
    best_of: Any = 1
    background: Any = False
    of_gemini: Any = msgspec.field(default=None, name="generationConfig")
    of_gemini_too: Any = msgspec.field(default=None, name="generation_config")


@dataclass(frozen=True, slots=True)
class Bound:
    """An estimate of what goes in, and the most that may come out."""

    model: str = ""
    tokens: Tokens = field(default_factory=lambda: Tokens(output=DEFAULT_OUTPUT))
    in_background: bool = False
    """It is answered at once, and costs later."""

    def cost(self, price: Price) -> float:
        """What is read may be written to a cache as well, which is dearer with some."""
        dear = Price(max(price.input, price.cache_write), price.output, 0.0, 0.0)
        return dear.cost(self.tokens)


def bound_of(body: bytes, *, named: str = "", outputs: bool = True) -> Bound:
    """`named` is the model, where the path says it; Illegible for what cannot be read."""
    try:
        said = msgspec.json.decode(body or b"{}", type=_Said)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Illegible(str(error)) from error
    inner = [each for each in (said.of_gemini, said.of_gemini_too) if isinstance(each, dict)]
    bounds = [said.max_tokens, said.max_completion_tokens, said.max_output_tokens]
    answers = [said.n, said.best_of]
    for each in inner:
        bounds += [each.get("maxOutputTokens"), each.get("max_output_tokens")]
        answers += [each.get("candidateCount"), each.get("candidate_count")]
    # Where several are given, servers differ in which of them they go by.
    most = max((_number(each) for each in bounds), default=0) or DEFAULT_OUTPUT
    count = max(1, *(_number(each) for each in answers))
    tokens = Tokens(-(-len(body) // BYTES_PER_TOKEN), most * count if outputs else 0)
    model = said.model if isinstance(said.model, str) else ""
    return Bound(named or model, tokens, bool(said.background))


def check_single(body: bytes) -> None:
    """Doubled where what is judged here might not be what is answered there; Illegible for what
    cannot be read."""
    try:
        json.loads(body or b"{}", object_pairs_hook=_single)
    except (ValueError, RecursionError) as error:
        raise Illegible(str(error)) from error


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, count in Counter(n for n, _ in pairs).items() if count > 1)
        raise Doubled(f"{twice[:_SHOWN]!r} stands twice in one object")
    return found


def _number(said: object) -> int:
    """Some servers take a number in quotes for one."""
    try:
        found = float(said)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0
    except OverflowError:  # hundreds of digits
        found = math.inf if isinstance(said, int) and said > 0 else 0.0
    return int(min(found, _MOST_TOKENS)) if found > 0 else 0
