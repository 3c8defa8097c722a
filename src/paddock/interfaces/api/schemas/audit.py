"""Shapes of the audit log: its entries, and what checking it says."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from paddock.domain.audit import AuditEntry, Break, Head, Walk
from paddock.interfaces.api.schemas.common import Shape, at


class Acting(Shape):
    """The person who acted."""

    id: str
    name: str = Field(description="as it is now; empty when they were forgotten")


class AuditShape(Shape):
    """One act of somebody, with its place in the team's chain."""

    seq: int = Field(description="its number in the team's chain, from 1 without a gap")
    at: datetime
    at_seconds: float
    team_id: str
    actor: str
    person: Acting | None
    action: str
    subject: str
    detail: dict[str, Any]
    previous: str = Field(description="the hash of the team's entry before it")
    hash: str
    seal: str = Field(description="of the detail; it is what the hash is of")
    salt: str = Field(description="empty when the detail was taken out")


class HeadShape(Shape):
    """A link of a chain."""

    seq: int
    hash: str


class BreakShape(Shape):
    """Where a chain does not hold."""

    seq: int
    problem: str


class VerdictShape(Shape):
    """What going along a chain from its first entry to its last has shown."""

    holds: bool
    entries: int
    head: HeadShape = Field(
        description="the last entry; keep it elsewhere, for a log whose end is cut off looks whole"
    )
    breaks: int
    first_break: BreakShape | None
    redacted: int = Field(description="entries whose detail was taken out")
    accounted: int = Field(description="how many of them purges in the log account for")


def show_verdict(walk: Walk) -> VerdictShape:
    return VerdictShape(
        holds=walk.first is None,
        entries=walk.entries,
        head=show_head(walk.head),
        breaks=walk.breaks,
        first_break=show_break(walk.first),
        redacted=walk.redacted,
        accounted=walk.accounted,
    )


def show_head(head: Head) -> HeadShape:
    return HeadShape(seq=head.seq, hash=head.hash)


def show_break(found: Break | None) -> BreakShape | None:
    return BreakShape(seq=found.seq, problem=found.problem) if found else None


def show_entry(entry: AuditEntry, names: Mapping[str, str]) -> AuditShape:
    holder = holder_of(entry)
    return AuditShape(
        seq=entry.team_seq,
        at=at(entry.at),
        at_seconds=entry.at,
        team_id=entry.team_id,
        actor=entry.actor,
        person=Acting(id=holder, name=names[holder]) if holder in names else None,
        action=entry.action,
        subject=entry.subject,
        detail=dict(entry.detail),
        previous=entry.team_previous,
        hash=entry.team_hash,
        seal=entry.seal,
        salt=entry.salt,
    )


def holder_of(entry: AuditEntry) -> str:
    return entry.actor.partition("/")[0]
