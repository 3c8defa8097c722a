"""Which requests to a model API cost something, and whether what they cost can be counted."""

import re
from enum import StrEnum

from paddock.domain.broker.models import Dialect


class Cost(StrEnum):
    """What is known of a request by its method and path."""

    COUNTED = "counted"
    """Its answer says what it took."""
    FREE = "free"
    UNKNOWN = "unknown"
    """It may cost something, and nothing here would notice: now, or later, as a batch does."""


_READING = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_COUNTED = {
    Dialect.ANTHROPIC: re.compile(r"/(messages|complete)"),
    Dialect.OPENAI: re.compile(r"/(chat/completions|completions|responses(/compact)?|embeddings)"),
    Dialect.GEMINI: re.compile(
        r"/models/[^/:]+:(generateContent|streamGenerateContent|embedContent|batchEmbedContents)"
    ),
}
_FREE = {
    Dialect.ANTHROPIC: re.compile(r"/messages/(count_tokens|batches/[^/]+/cancel)"),
    Dialect.OPENAI: re.compile(
        r"/(responses/input_tokens|(responses|batches)/[^/]+/cancel|moderations)"
    ),
    Dialect.GEMINI: re.compile(r"/models/[^/:]+:(countTokens|computeTokens)"),
}
_WITHOUT_OUTPUT = re.compile(r".*(/embeddings|:(embedContent|batchEmbedContents))")
_CHAT = re.compile(r".*/completions")
_OF_MODEL = re.compile(r".*/models/([^/:]+):[^/:]*")
_VERSION = r"(/[A-Za-z0-9._-]+)*?"
"""What an API has before its own paths: `/v1`, `/api/v1`, `/openai/deployments/gpt-5`."""


def cost_of(dialect: Dialect, method: str, path: str) -> Cost:
    """Of a request, by its path in normal form and without its query.

    What only reads costs nothing. Of what is sent, that which is not known here is unknown: a path
    that an API gets next year must not pass a limit by being new.
    """
    if method in _READING:
        return Cost.FREE
    for found, cost in ((_FREE, Cost.FREE), (_COUNTED, Cost.COUNTED)):
        if re.fullmatch(_VERSION + found[dialect].pattern, path):
            return cost
    return Cost.UNKNOWN


def has_output(path: str) -> bool:
    """By a path in normal form: whether a model answers with words, which are what costs most."""
    return not _WITHOUT_OUTPUT.fullmatch(path)


def is_chat(dialect: Dialect, path: str) -> bool:
    """Whether what streams says what it took only to who asks for that."""
    return dialect is Dialect.OPENAI and _CHAT.fullmatch(path) is not None


def model_in(path: str) -> str:
    """Where the path says it, and not the request."""
    named = _OF_MODEL.fullmatch(path)
    return named[1] if named else ""
