"""What the model answers, before an API gives it its shape."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddock.testing.models.conversation import Json
from paddock.testing.models.script import Usage

SIGNATURE = "c2NyaXB0ZWQ="
"""Where an API wants proof that the thoughts are its own."""

_USAGE = Usage()
_PIECE = 24
_PIECES = 64


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool as the agent knows it. A custom tool has a text as its arguments."""

    name: str
    arguments: Json | str
    namespace: str = ""

    @property
    def is_custom(self) -> bool:
        return isinstance(self.arguments, str)

    @property
    def text(self) -> str:
        """The arguments as they go over the wire where that is a text."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. `number` counts the replies of a conversation and `call_number` its calls.

    With `salt` they make ids that are the same when a request is repeated and different elsewhere.
    """

    model: str
    text: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = _USAGE
    salt: str = ""
    number: int = 1
    call_number: int = 1
    created: int = 0

    @property
    def id(self) -> str:
        return f"{self.salt}{self.number:04d}"

    def numbered_calls(self) -> list[tuple[str, ToolCall]]:
        return [
            (f"{self.salt}{number:04d}", call)
            for number, call in enumerate(self.calls, self.call_number)
        ]


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event."""

    data: Json | str
    name: str = ""

    def encoded(self) -> bytes:
        head = f"event: {self.name}\n" if self.name else ""
        data = self.data if isinstance(self.data, str) else compact(self.data)
        return f"{head}data: {data}\n\n".encode()


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def pieces(text: str) -> Iterator[str]:
    """The text bit by bit, in so few pieces that a megabyte is not a flood."""
    size = max(_PIECE, -(-len(text) // _PIECES))
    return (text[start : start + size] for start in range(0, len(text), size))
