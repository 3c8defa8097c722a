"""Routes to model APIs: who is spoken to, in which dialect, and what it costs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

DOMAIN = "models.paddock.internal"
"""A sandbox finds the route `x` at http://x.models.paddock.internal."""
_MILLION = 1_000_000
ANY_MODEL = "*"
_EDITION = re.compile(r"[-@]([0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8}|latest)$")
"""What tells editions of the same model apart, which cost the same."""


class Dialect(StrEnum):
    """How requests, answers and errors are spelt."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True)
class Known:
    """A provider whose SDKs read variables that are known."""

    base_url: str
    dialect: Dialect
    key_variable: str
    url_variable: str
    suffix: str = ""
    """What SDKs want to have at the end of the base URL."""


KNOWN: Mapping[str, Known] = {
    "anthropic": Known(
        "https://api.anthropic.com", Dialect.ANTHROPIC, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"
    ),
    "openai": Known(
        "https://api.openai.com", Dialect.OPENAI, "OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"
    ),
    "gemini": Known(
        "https://generativelanguage.googleapis.com",
        Dialect.GEMINI,
        "GEMINI_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
    ),
    "openrouter": Known(
        "https://openrouter.ai",
        Dialect.OPENAI,
        "OPENROUTER_API_KEY",
        "OPENROUTER_BASE_URL",
        "/api/v1",
    ),
}


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a request took, in tokens. `input` is without what came from a cache; what was thought
    is output, so that it is paid for once."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
        )

    @property
    def any(self) -> bool:
        return bool(self.input or self.output or self.cache_read or self.cache_write)


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for a million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float

    def cost(self, tokens: Tokens) -> float:
        paid = (
            tokens.input * self.input
            + tokens.output * self.output
            + tokens.cache_read * self.cache_read
            + tokens.cache_write * self.cache_write
        )
        return paid / _MILLION


DEAR = Price(15.0, 75.0, 1.5, 18.75)
"""Of a model that nobody has priced: what has no price must not pass a limit by that."""


@dataclass(frozen=True, slots=True)
class Prices:
    """By model: its name, with or without the day of its edition, and `*` for all others.

    A name that only begins like one in the table is another model, and may cost ten times as much.
    """

    table: Mapping[str, Price] = field(default_factory=dict)
    as_of: str = ""
    """When they held, as who wrote them down says."""
    note: str = ""
    """Where they come from, for people."""

    def of(self, model: str) -> Price:
        return self.table.get(self._entry(model) or ANY_MODEL, DEAR)

    def knows(self, model: str) -> bool:
        """Whether the model's price is more than an assumption."""
        return bool(self._entry(model))

    def _entry(self, model: str) -> str:
        """Names of OpenRouter have their maker before a slash."""
        for name in (model, model.rpartition("/")[2]):
            for each in (name, _EDITION.sub("", name)):
                if each in self.table and each != ANY_MODEL:
                    return each
        return ""


def host_of(route: str) -> str:
    """The name that a sandbox finds a route by."""
    return f"{route}.{DOMAIN}"
