"""Events that others tell of: numbered by their source, so that each is kept once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paddock.domain.errors import InvalidRequest, LimitExceeded

MOST_AT_ONCE = 1000
LARGEST_DATA = 64 << 10
LAST_SEQ = (1 << 53) - 1
"""The largest whole number that every program reads as it was written."""
_MOST_GAPS = 100
MOST_SOURCES = 1000
_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
Range = tuple[int, int]
"""From the first number to the last, both included."""


@dataclass(frozen=True, slots=True)
class Report:
    """One event as its source tells it."""

    source: str
    seq: int
    """Each source counts its own, from 1."""
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)
    at: float | None = None
    """When it happened by the source's clock, which nobody vouches for."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """How far a source has come."""

    sandbox_id: str
    source: str
    last_seq: int = 0
    missing: tuple[Range, ...] = ()
    """What was left out so far; it may still come."""
    changed_at: float = 0.0


def taken(state: SourceState, seq: int) -> SourceState | None:
    """The state after this number; None when the number was there before."""
    if seq == state.last_seq + 1:
        return replace(state, last_seq=seq)
    if seq > state.last_seq:
        if len(state.missing) >= _MOST_GAPS:
            raise LimitExceeded(
                f"source {state.source} has left out numbers in {_MOST_GAPS} places",
                remediation=f"send them, beginning with {state.missing[0][0]}, or use a new source",
            )
        gap = (state.last_seq + 1, seq - 1)
        return replace(state, last_seq=seq, missing=(*state.missing, gap))
    for first, last in state.missing:
        if first <= seq <= last:
            return replace(state, missing=_without(state.missing, seq))
    return None


def _without(ranges: tuple[Range, ...], seq: int) -> tuple[Range, ...]:
    left: list[Range] = []
    for first, last in ranges:
        if not first <= seq <= last:
            left.append((first, last))
            continue
        left += [part for part in ((first, seq - 1), (seq + 1, last)) if part[0] <= part[1]]
    return tuple(left)


def check_source(source: str) -> str:
    if _SOURCE.fullmatch(source):
        return source
    raise InvalidRequest(
        f"{source[:80]!r} is no name of a source",
        remediation="use up to 100 of A-Z, a-z, 0-9 and . _ : -, beginning with a letter or digit",
    )


def check_sources(count: int) -> None:
    """Raise LimitExceeded if a sandbox has too many sources: each is a row until it is deleted."""
    if count > MOST_SOURCES:
        raise LimitExceeded(
            f"this sandbox would have {count} sources of events; the limit is {MOST_SOURCES}",
            remediation="report with an existing source, and continue its sequence numbers",
        )
