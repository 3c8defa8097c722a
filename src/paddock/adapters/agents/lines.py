"""Lines of JSON that an agent writes and reads.

What comes from an agent may be anything. So nothing in here raises: what is not there, or is of
another kind than expected, is empty.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paddock.domain.agent_event import LONGEST_DATA

Json = dict[str, Any]

_RISKY = (b"\\u0000", b"\\ud", b"\\uD")
"""How a NUL or half a character is spelt, which neither a database nor UTF-8 can hold."""
_DEEPEST = 100
"""Whoever goes through a value of more levels by recursion could fail on the way."""


_LARGEST = 2**53
"""Of a number. What is larger can be no count, and is not even exact where others read it."""
_MOST_NAMES = 200
_LONGEST_NAME = 200
_DEEPEST_INPUT = 16


def parsed(line: bytes) -> Json | None:
    """The object in a line; None for a line with anything else in it."""
    start = line.lstrip()[:1]
    if start != b"{":
        return None
    try:
        value = json.loads(
            line.decode(errors="replace"), parse_constant=_refused, parse_float=_finite
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or _is_too_deep(value):
        return None
    return _clean(value) if any(mark in line for mark in _RISKY) else value


def written(value: Json) -> bytes:
    """A line for an agent. All of it is ASCII: some of them end a line at U+2028 as well."""
    return json.dumps(_clean(value)).encode() + b"\n"


def at(value: Any, *path: str | int) -> Any:
    """What is found there; None if there is nothing."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def table(value: Any, *path: str | int) -> Json:
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def rows(value: Any, *path: str | int) -> list[Any]:
    found = at(value, *path)
    return found if isinstance(found, list) else []


def text(value: Any, *path: str | int) -> str:
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def number(value: Any, *path: str | int) -> float:
    found = at(value, *path)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return found if is_number and abs(found) <= _LARGEST else 0


def whole(value: Any, *path: str | int) -> int:
    return int(number(value, *path))


def known(**found: Any) -> Json:
    """Only what is known."""
    return {name: value for name, value in found.items() if value not in (None, "")}


def cut(name: str, said: str) -> Json:
    """A text of an event, with a mark if it was too long."""
    if len(said) <= LONGEST_DATA:
        return {name: said}
    return {name: said[:LONGEST_DATA], "cut": True}


def cut_input(given: Any) -> Json:
    """What a tool is called with, no text longer than an event's may be, and all of it bounded."""
    whole_of_it = given if isinstance(given, dict) else {}
    # What is short is kept whole, wherever it stands: a name or a command rather than a content.
    # Texts and numbers before what holds others.
    order = sorted(whole_of_it, key=lambda name: _size(whole_of_it[name]))[:_MOST_NAMES]
    room = _Room()
    kept = {name[:_LONGEST_NAME]: room.part(whole_of_it[name], 1) for name in order}
    shortened = {name: kept[name] for name in whole_of_it if name in kept}
    return {"input": shortened} if shortened == given else {"input": shortened, "cut": True}


def _size(value: Any) -> int:
    if isinstance(value, dict | list):
        return LONGEST_DATA + len(value)
    return min(len(value), LONGEST_DATA) if isinstance(value, str) else 0


@dataclass(slots=True)
class _Room:
    """What is left for an input: each part takes of it."""

    characters: int = 64 << 10
    items: int = 2000

    def part(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict | list) and depth > _DEEPEST_INPUT:
            return None
        if isinstance(value, list):
            return [self.part(item, depth + 1) for item in value[: self._many(value)]]
        if isinstance(value, dict):
            names = list(value)[: self._many(value)]
            return {self._text(name): self.part(value[name], depth + 1) for name in names}
        if isinstance(value, int | float) and abs(value) > _LARGEST:
            return None
        return value

    def _many(self, value: Json | list[Any]) -> int:
        taken = min(len(value), self.items)
        self.items -= taken
        return taken

    def _text(self, value: str) -> str:
        kept = value[: min(LONGEST_DATA, self.characters)]
        self.characters -= len(kept)
        return kept


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(name): _clean(item) for name, item in value.items()}
    return value


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _within(outer)]
        if not level:
            return False
    return True


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    if math.isinf(value := float(digits)):
        raise ValueError(f"{digits} is too large")
    return value
