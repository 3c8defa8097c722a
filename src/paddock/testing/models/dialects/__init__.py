"""The APIs that the scripted model speaks: each reads requests and writes replies, purely."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from paddock.testing.models.conversation import Asked, Json
from paddock.testing.models.dialects import anthropic, chat, gemini, responses
from paddock.testing.models.reply import Event, Reply
from paddock.testing.models.script import Fail

__all__ = ["ANTHROPIC", "CHAT", "GEMINI", "RESPONSES", "Dialect"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """`whole` is a reply at once, `events` the same one streamed, `error` the body of a failure."""

    name: str
    read: Callable[[Json], Asked]
    whole: Callable[[Reply], Json]
    events: Callable[[Reply, Asked], Iterator[Event]]
    error: Callable[[Fail, str], Json]


ANTHROPIC = Dialect("anthropic", anthropic.read, anthropic.whole, anthropic.events, anthropic.error)
RESPONSES = Dialect("responses", responses.read, responses.whole, responses.events, responses.error)
CHAT = Dialect("chat", chat.read, chat.whole, chat.events, chat.error)
GEMINI = Dialect("gemini", gemini.read, gemini.whole, gemini.events, gemini.error)
