"""Who did what: entries that each hold the hash of the one before, so that tampering shows."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

GENESIS = "0" * 64


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act of somebody. `seq`, `previous` and `hash` are given when it joins the chain."""

    team_id: str
    actor: str
    action: str
    subject: str
    at: float
    detail: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0
    previous: str = GENESIS
    hash: str = ""


@dataclass(frozen=True, slots=True)
class Break:
    """Where a chain does not hold any more."""

    seq: int
    problem: str


def chained(entry: AuditEntry, seq: int, previous: str) -> AuditEntry:
    """The entry as the next link after `previous`."""
    placed = replace(entry, seq=seq, previous=previous)
    return replace(placed, hash=link(placed))


def link(entry: AuditEntry) -> str:
    """The hash of everything in the entry, the previous hash included."""
    content = [
        entry.seq,
        entry.previous,
        entry.team_id,
        entry.actor,
        entry.action,
        entry.subject,
        entry.at,
        entry.detail,
    ]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def first_break(
    entries: Iterable[AuditEntry], *, seq: int = 0, previous: str = GENESIS
) -> Break | None:
    """The first place where an entry was changed, removed or put in; None when all is as written.

    `seq` and `previous` are the last good link before `entries`.
    """
    for entry in entries:
        if entry.seq != seq + 1:
            return Break(entry.seq, f"entry {seq + 1} is missing")
        if entry.previous != previous:
            return Break(entry.seq, "it does not follow the entry before it")
        if entry.hash != link(entry):
            return Break(entry.seq, "its content was changed")
        seq, previous = entry.seq, entry.hash
    return None
