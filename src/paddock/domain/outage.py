"""A provider that is away: what is taken for that, how long it is remembered, and what is said."""

from dataclasses import dataclass

from paddock.domain.errors import PaddockError, TimedOut, Unavailable

OUTAGE_S = 60.0
"""For so long a provider that did not answer is not asked again."""


@dataclass(frozen=True, slots=True)
class Outage:
    """That a provider does not answer."""

    provider: str
    since: float
    ask_at: float
    """When it is asked again."""
    error: PaddockError
    """What was found the last time."""


def is_outage(error: PaddockError) -> bool:
    """Whether nobody answers. One that is full does: its quota is waited for."""
    return isinstance(error, Unavailable | TimedOut)


def lasting(
    before: Outage | None, provider: str, error: PaddockError, *, now: float, lasts_s: float
) -> Outage:
    """The outage that begins with this error, or goes on with it."""
    return Outage(provider, before.since if before else now, now + lasts_s, error)


def retold(error: PaddockError, provider: str, said: str) -> PaddockError:
    """The same error with the provider's name, and why the fallback was of no help."""
    return type(error)(
        f"provider {provider} is away: {error.message}; {said}",
        remediation=error.remediation,
        retry_after_s=error.retry_after_s,
    )


def bound_by(*, provider: str, snapshot: str, source: str, volumes: bool) -> str:
    """Why a sandbox can be made on one provider only, in words; empty where it does not matter."""
    if source:
        return "the sandbox it is a fork of is there"
    if snapshot:
        return f"snapshot {snapshot[:80]} is there"
    if provider:
        return f"provider {provider} was named"
    return "its volumes are there" if volumes else ""
