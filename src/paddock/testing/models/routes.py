"""Which API a path belongs to, by its end: base URLs differ from agent to agent."""

import re
from dataclasses import dataclass
from enum import StrEnum

from paddock.testing.models.conversation import Json
from paddock.testing.models.dialects import ANTHROPIC, CHAT, GEMINI, RESPONSES, Dialect


class Kind(StrEnum):
    """What is wanted of the model."""

    REPLY = "reply"
    COUNT = "count"
    ASSIST = "assist"


@dataclass(frozen=True, slots=True)
class Route:
    """A request to an API. `in_path` is what Gemini's path says about it; Code Assist wraps it."""

    dialect: Dialect
    kind: Kind
    in_path: tuple[tuple[str, str | bool], ...] = ()
    is_wrapped: bool = False

    def body(self, given: Json) -> Json:
        inner = given.get("request") if self.is_wrapped else given
        model = {"model": given["model"]} if self.is_wrapped and "model" in given else {}
        return {**(inner if isinstance(inner, dict) else {}), **model, **dict(self.in_path)}

    def answer(self, data: Json) -> Json:
        return {"response": data} if self.is_wrapped else data


_BY_END = (
    ("/messages", ANTHROPIC, Kind.REPLY),
    ("/messages/count_tokens", ANTHROPIC, Kind.COUNT),
    ("/responses", RESPONSES, Kind.REPLY),
    ("/chat/completions", CHAT, Kind.REPLY),
)
_GEMINI = re.compile(r"(?:.*/models/(?P<model>[^/:]+)|.*/v1internal):(?P<verb>\w+)")
_VERBS = {
    "generateContent": Kind.REPLY,
    "streamGenerateContent": Kind.REPLY,
    "countTokens": Kind.COUNT,
}

ASSIST: Json = {
    "currentTier": {"id": "standard-tier", "name": "Standard"},
    "allowedTiers": [{"id": "standard-tier", "isDefault": True}],
    "cloudaicompanionProject": "scripted-project",
    "done": True,
}
"""What Code Assist tells about an account; also fits its other questions."""


def route(path: str) -> Route | None:
    for end, dialect, kind in _BY_END:
        if path.endswith(end):
            return Route(dialect, kind)
    found = _GEMINI.fullmatch(path)
    if not found:
        return None
    model, verb = found["model"], found["verb"]
    kind = _VERBS.get(verb, Kind.ASSIST)
    if model and kind is Kind.ASSIST:
        return None
    streams = verb == "streamGenerateContent"
    named = (("model", model),) if model else ()
    return Route(GEMINI, kind, (*named, ("stream", streams)), is_wrapped=model is None)
