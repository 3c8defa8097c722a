"""JSON-RPC over lines, both ways: with whom a conversation is plain data too."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from paddock.adapters.agents.lines import Json, parsed, table, text, written

UNKNOWN_METHOD = -32601


@dataclass(frozen=True, slots=True)
class Notice:
    """They say something, and want no answer."""

    method: str
    params: Json


@dataclass(frozen=True, slots=True)
class Asked:
    """They want something; not to answer would make them wait for ever."""

    id: int | str
    method: str
    params: Json


@dataclass(frozen=True, slots=True)
class Answer:
    """To a request of ours. Exactly one of result and error counts."""

    id: int | str
    result: Any = None
    error: Json | None = None

    @property
    def why(self) -> str:
        """What went wrong, in their words."""
        return text(self.error, "message") or (str(self.error) if self.error else "")


Heard = Notice | Asked | Answer


def heard(line: bytes) -> Heard | None:
    """Ids of both sides overlap: what has a method is theirs, whatever its id."""
    value = parsed(line)
    if value is None:
        return None
    number, method = value.get("id"), value.get("method")
    if isinstance(method, str):
        params = table(value, "params")
        return Asked(number, method, params) if _is_id(number) else Notice(method, params)
    if not _is_id(number):
        return None
    if "error" in value:
        error = value["error"]
        return Answer(number, error=error if isinstance(error, dict) else {"message": str(error)})
    return Answer(number, value.get("result"))


@dataclass(frozen=True, slots=True)
class Calls:
    """Our requests: the number of the next one, and what those were about that are open."""

    next: int = 1
    open: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    """What to say in `jsonrpc`; some leave it out."""

    @classmethod
    def of(cls, state: Mapping[str, Any], version: str = "") -> "Calls":
        """As `kept` has given it."""
        return cls(state.get("next", 1), dict(state.get("open", {})), version)

    def kept(self) -> Json:
        return {"next": self.next, "open": dict(self.open)}

    def ask(self, method: str, params: Json, about: Any) -> tuple["Calls", bytes]:
        """The request's line; `about` is plain data that comes back with its answer."""
        following = Calls(self.next + 1, {**self.open, str(self.next): about}, self.version)
        return following, self._line(id=self.next, method=method, params=params)

    def answered(self, answer: Answer) -> tuple["Calls", Any]:
        """What the answer is about; None for one that nobody asked for, or that came before."""
        rest = {number: about for number, about in self.open.items() if number != str(answer.id)}
        return Calls(self.next, rest, self.version), self.open.get(str(answer.id))

    def tell(self, method: str, params: Json | None = None) -> bytes:
        return self._line(method=method, **({} if params is None else {"params": params}))

    def answer(self, asked: Asked, result: Json) -> bytes:
        return self._line(id=asked.id, result=result)

    def refuse(self, asked: Asked, why: str = "", code: int = UNKNOWN_METHOD) -> bytes:
        error = {"code": code, "message": why or f"{asked.method} is not known here"}
        return self._line(id=asked.id, error=error)

    def _line(self, **members: Any) -> bytes:
        return written({"jsonrpc": self.version, **members} if self.version else members)


def _is_id(value: Any) -> TypeGuard[int | str]:
    return isinstance(value, int | str) and not isinstance(value, bool)
