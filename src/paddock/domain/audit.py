"""Who did what: entries that each hold the hash of the one before, so that tampering shows.

An entry's detail is in the chain only by its seal, a hash with a salt. So what is personal in a
detail can be taken out: the seal stays, the chain holds, and without the salt nobody can find out
what it was by trying names.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

GENESIS = "0" * 64


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act of somebody. `seq` and what follows are given when it joins the chain."""

    team_id: str
    actor: str
    action: str
    subject: str
    at: float
    detail: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0
    previous: str = GENESIS
    hash: str = ""
    seal: str = ""
    """Of the detail; empty in entries from before there were seals, whose detail is in the hash."""
    salt: str = ""
    """Empty when the detail was taken out."""

    @property
    def is_redacted(self) -> bool:
        return bool(self.seal) and not self.salt


@dataclass(frozen=True, slots=True)
class Break:
    """Where a chain does not hold any more."""

    seq: int
    problem: str


def chained(entry: AuditEntry, seq: int, previous: str) -> AuditEntry:
    """The entry as the next link after `previous`."""
    salt = secrets.token_hex(16)
    seal = sealed(entry.detail, salt)
    placed = replace(entry, seq=seq, previous=previous, salt=salt, seal=seal)
    return replace(placed, hash=link(placed))


def sealed(detail: Mapping[str, Any], salt: str) -> str:
    return hashlib.sha256(f"{salt}{_text(detail)}".encode()).hexdigest()


def link(entry: AuditEntry) -> str:
    """The hash of everything in the entry, the previous hash included, the detail by its seal."""
    content = [
        entry.seq,
        entry.previous,
        entry.team_id,
        entry.actor,
        entry.action,
        entry.subject,
        entry.at,
        entry.seal or entry.detail,
    ]
    return hashlib.sha256(_text(content).encode()).hexdigest()


def _text(content: object) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _is_as_written(entry: AuditEntry) -> bool:
    if entry.hash != link(entry):
        return False
    if entry.is_redacted:
        return not entry.detail
    return not entry.seal or entry.seal == sealed(entry.detail, entry.salt)


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
        if not _is_as_written(entry):
            return Break(entry.seq, "its content was changed")
        seq, previous = entry.seq, entry.hash
    return None
