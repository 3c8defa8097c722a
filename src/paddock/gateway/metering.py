"""How many tokens an answer of a model took, read as it streams by."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paddock.domain.broker.models import Dialect, Tokens

_MOST_HELD = 1 << 20
_TAIL = 65536
_IN_TEXT = re.compile(rb'"(?:usage|usageMetadata)"\s*:\s*\{')
_BYTES_PER_TOKEN = 4
"""Of text that nobody has counted."""
_BYTES_AROUND = 100
"""Of what stands around the text in each piece of a stream."""

Told = Callable[[str, Tokens, bool], None]
"""The model, what it took, and whether that is a guess."""


class Meter:
    """One answer. What it took is told once, at its end, also when it was cut short.

    `most` is what it may take at all: so much is taken for granted where an answer that comes whole
    was cut off before it said so, since its server has made all of it. Where it is `strict`, so it
    is whenever nothing final was said: of what was thought, and of what was read, nothing may come.
    """

    def __init__(
        self,
        dialect: Dialect,
        told: Told,
        *,
        streamed: bool,
        asked: int = 0,
        most: Tokens | None = None,
        strict: bool = False,
    ) -> None:
        self._dialect = dialect
        self._told = told
        self._streamed = streamed
        self._asked = asked
        self._most = most
        self._strict = strict
        self._held = bytearray()
        self._size = 0
        self._model = ""
        self._fields: dict[str, int] = {}
        self._pieces = 0
        self._is_final = dialect is Dialect.OPENAI
        """Whether the last count was seen: Anthropic begins with one of a single token, and Gemini
        has one in every piece."""
        self._is_told = False

    def feed(self, data: bytes) -> None:
        self._held += data
        self._size += len(data)
        if self._streamed:
            *lines, rest = self._held.split(b"\n")
            self._held = bytearray(rest[-_MOST_HELD:])
            for line in lines:
                self._line(bytes(line))
        elif len(self._held) > _MOST_HELD:
            del self._held[: len(self._held) - _TAIL]

    def end(self) -> None:
        """All of it has come."""
        self._tell(is_cut=False)

    def cut(self) -> None:
        """Nothing more of it will come."""
        self._tell(is_cut=True)

    def _tell(self, *, is_cut: bool) -> None:
        if self._is_told:
            return
        self._is_told = True
        if self._streamed:
            self._line(bytes(self._held))
        else:
            self._whole(bytes(self._held))
        tokens = self._tokens()
        is_guess = not tokens.any or not self._has_ended(is_cut=is_cut)
        if is_guess:
            tokens = self._guessed(tokens, is_cut=is_cut)
        self._told(self._model, tokens, is_guess)

    def _has_ended(self, *, is_cut: bool) -> bool:
        """Whether the counts that were seen are the last ones."""
        if self._dialect is Dialect.GEMINI:
            return self._is_final or not is_cut
        return self._is_final or not self._streamed

    def _guessed(self, said: Tokens, *, is_cut: bool) -> Tokens:
        """By what has come, where that is nearly what was made; otherwise all that might be."""
        if self._strict and self._most is not None:
            asked = said if said.any else self._most
            return replace(asked, output=max(said.output, self._most.output))
        if self._streamed:
            text = (self._size - _BYTES_AROUND * self._pieces) // _BYTES_PER_TOKEN
            made = max(said.output, self._pieces, text)
        elif is_cut and self._most is not None:
            return self._most
        else:
            made = self._size // _BYTES_PER_TOKEN
        if self._most is not None:
            made = max(said.output, min(made, self._most.output))
        asked = said if said.any else Tokens(input=self._asked // _BYTES_PER_TOKEN)
        return replace(asked, output=made)

    def _line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        self._pieces += 1
        if b'"usage' in line or not self._model:
            self._note(_parsed(line[5:]))

    def _whole(self, data: bytes) -> None:
        found = _parsed(data)
        if isinstance(found, list):  # Gemini's stream without SSE
            for each in found:
                self._note(each)
        elif found is not None:
            self._note(found)
        elif (matches := list(_IN_TEXT.finditer(data))) and (
            usage := _first_object(data[matches[-1].end() - 1 :])
        ):
            self._take(usage)

    def _note(self, said: Any) -> None:
        """Wherever a dialect has it: beside the answer, or in the message or response in it."""
        if not isinstance(said, dict):
            return
        if said.get("type") == "message_delta" and said.get("usage"):
            self._is_final = True
        if any("finishReason" in each for each in _objects(said.get("candidates"))):
            self._is_final = True
        for part in (said, said.get("message"), said.get("response")):
            if isinstance(part, dict):
                self._model = self._model or str(
                    part.get("model") or part.get("modelVersion") or ""
                )
                self._take(part.get("usage") or part.get("usageMetadata"))

    def _take(self, usage: object) -> None:
        """Counts grow while an answer streams; the last, which is the largest, holds."""
        if not isinstance(usage, dict):
            return
        for name, count in _flat(usage).items():
            self._fields[name] = max(count, self._fields.get(name, 0))

    def _tokens(self) -> Tokens:
        return _READERS[self._dialect](self._fields)


def _objects(said: object) -> list[dict[str, Any]]:
    return [each for each in said if isinstance(each, dict)] if isinstance(said, list) else []


def _flat(usage: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in usage.items():
        if isinstance(value, dict):
            found |= {inner: n for inner, n in value.items() if isinstance(n, int) and n >= 0}
        elif isinstance(value, int) and value >= 0:
            found[name] = value
    return found


def _anthropic(fields: Mapping[str, int]) -> Tokens:
    said = fields.get("output_tokens", 0)
    return Tokens(
        input=fields.get("input_tokens", 0),
        output=said,
        # It has none of its own; what stands in for it may.
        reasoning=min(fields.get("reasoning_tokens", 0), said),
        cache_read=fields.get("cache_read_input_tokens", 0),
        cache_write=fields.get("cache_creation_input_tokens", 0),
    )


def _openai(fields: Mapping[str, int]) -> Tokens:
    asked = fields.get("prompt_tokens", 0) or fields.get("input_tokens", 0)
    cached = min(fields.get("cached_tokens", 0), asked)
    said = fields.get("completion_tokens", 0) or fields.get("output_tokens", 0)
    thought = min(fields.get("reasoning_tokens", 0), said)
    return Tokens(input=asked - cached, output=said, cache_read=cached, reasoning=thought)


def _gemini(fields: Mapping[str, int]) -> Tokens:
    asked = fields.get("promptTokenCount", 0)
    cached = min(fields.get("cachedContentTokenCount", 0), asked)
    thought = fields.get("thoughtsTokenCount", 0)
    said = fields.get("candidatesTokenCount", 0) + thought
    return Tokens(input=asked - cached, output=said, cache_read=cached, reasoning=thought)


_READERS: dict[Dialect, Callable[[Mapping[str, int]], Tokens]] = {
    Dialect.ANTHROPIC: _anthropic,
    Dialect.OPENAI: _openai,
    Dialect.GEMINI: _gemini,
}


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _first_object(data: bytes) -> Any:
    try:
        return json.JSONDecoder().raw_decode(data.decode("utf-8", "replace"))[0]
    except ValueError:
        return None
