"""What a task may cost, and what it has cost so far."""

from dataclasses import dataclass, fields
from enum import StrEnum

from paddock.domain.errors import InvalidRequest

NEARLY = 0.9
"""From this part of a limit on, a task is told that little is left."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a task may use; what is None is not limited."""

    tokens: int | None = None
    cost_usd: float | None = None
    turns: int | None = None
    """Answers of the model, each with the tools that it calls."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not value > 0:
                raise InvalidRequest(
                    f"the budget's {each.name} is {value!r}; it must be more than 0",
                    remediation="leave it out for a task without that limit",
                )

    def times(self, factor: int) -> "Budget":
        """So many times as much of everything that is limited."""
        limits = (getattr(self, each.name) for each in fields(self))
        return Budget(*(None if limit is None else limit * factor for limit in limits))


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used: tokens as the model API counts them, each once."""

    input_tokens: int = 0
    cached_tokens: int = 0
    """Of the input, what was read from the API's cache."""
    output_tokens: int = 0
    cost_usd: float = 0.0
    turns: int = 0
    reasoning_tokens: int = 0
    """Of the output, what the model thought before it spoke."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def plus(self, more: "Spent") -> "Spent":
        return Spent(
            *(getattr(self, each.name) + getattr(more, each.name) for each in fields(self))
        )

    def or_more(self, other: "Spent") -> "Spent":
        """Of each kind the larger."""
        return Spent(
            *(max(getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        )


class Left(StrEnum):
    """How a budget stands."""

    ENOUGH = "enough"
    LITTLE = "little"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Standing:
    """How much is left, and of what there is least."""

    left: Left
    of: str = ""
    used: float = 0.0
    limit: float = 0.0

    def __str__(self) -> str:
        return f"{self.used:g} of {self.limit:g} {self.of}"


def standing(budget: Budget, spent: Spent) -> Standing:
    """The limit that is nearest to be reached decides."""
    parts = [
        (used / limit, name, float(used), float(limit))
        for name, limit in ((each.name, getattr(budget, each.name)) for each in fields(budget))
        if limit is not None
        for used in (getattr(spent, name),)
    ]
    if not parts:
        return Standing(Left.ENOUGH)
    part, name, used, limit = max(parts)
    left = Left.NOTHING if part >= 1 else Left.LITTLE if part >= NEARLY else Left.ENOUGH
    return Standing(left, name, used, limit)
