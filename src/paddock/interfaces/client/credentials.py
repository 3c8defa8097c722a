"""What the server says of secrets, of where they may be sent, and of what models took."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SecretInfo:
    """What is known of a value. The value itself is not."""

    name: str
    app: str | None
    version: int
    sensitive: bool
    policy: str
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class BindingInfo:
    """Where a secret may be sent, and in which form. What does not belong to its way is empty."""

    secret: str
    app: str | None
    way: str
    hosts: Sequence[str]
    header: str
    format: str
    user: str
    parameter: str
    env: str
    """The variable inside that has the placeholder."""
    sandboxes: Sequence[str]
    """Those that it is for; all where it names none."""
    expose: bool
    expires_at: datetime | None
    route: str
    base_url: str
    spend_limit_usd: float | None
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class CredentialInfo:
    """How a binding stands for one sandbox."""

    binding: BindingInfo
    placeholder: str
    exposed: bool
    """Its programs have the value itself."""
    works: bool
    why_not: str


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """Where a sandbox finds a model API."""

    route: str
    variable: str
    url: str
    """Inside the sandbox."""
    base_url: str
    """Outside of it."""
    spend_limit_usd: float | None


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What was taken of one model."""

    route: str
    model: str
    requests: int
    input_tokens: int
    """Without those that came from a cache."""
    output_tokens: int
    reasoning_tokens: int
    """Of the output, what was thought."""
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float
    guessed: bool
    """The API did not say how many tokens some of it were."""
    assumed_price: bool
    """The server's table had no price for the model, so it counted as if it were dear."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What a sandbox, or all of its task, took of model APIs, up to a second ago."""

    account: str
    spent_usd: float
    routes: Sequence[ModelRoute]
    used: Sequence[ModelUsage]
