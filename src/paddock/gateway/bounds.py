"""What a request to a model may take at most, as far as it says so itself."""

import math
import re
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
_JUDGED = ("generationConfig", "generation_config", "stream_options")
_MEMBER = re.compile(rb'[\s,]*+("(?:[^"\\]|\\.)*+")\s*+:\s*+', re.DOTALL)
_END = re.compile(rb"\s*+}\s*+")


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
    cannot be read. Only the objects that are judged are gone through, member by member: all those
    of a large body would take many times its size."""
    members = _single(body or b"{}")
    for name in _JUDGED:
        if (inner := bytes(members.get(name, b""))).startswith(b"{"):
            _single(inner)


def _single(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of an object, each of which is named once."""
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Illegible(str(error)) from error
    at, name, names = text.index(b"{") + 1, "", set[str]()
    while member := _MEMBER.match(text, at):
        name = msgspec.json.decode(member[1], type=str)
        value = bytes(found[name])
        # Of two values it has found the last, so that another stands here for the first.
        if name in names or not text.startswith(value, member.end()):
            raise _doubled(name)
        names.add(name)
        at = member.end() + len(value)
    if not _END.fullmatch(text, at):  # of the other value only the beginning is the same
        raise _doubled(name)
    return found


def _doubled(name: str) -> Doubled:
    return Doubled(f"{name[:_SHOWN]!r} stands twice in one object")


def _number(said: object) -> int:
    """Some servers take a number in quotes for one."""
    try:
        found = float(said)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0
    except OverflowError:  # hundreds of digits
        found = math.inf if isinstance(said, int) and said > 0 else 0.0
    return int(min(found, _MOST_TOKENS)) if found > 0 else 0
