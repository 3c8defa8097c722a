"""Who did what: entries that each hold the hash of the one before, so that tampering shows.

There are two chains. Each team has its own, which is all that it is shown: whoever holds an export
can check it, and it tells nothing of other teams. All entries together are the installation's
chain, whose links are of the teams' links.

An entry's detail is in the chain only by its seal, a hash with a salt. So what is personal in a
detail can be taken out: the seal stays, the chain holds, and without the salt nobody can find out
what it was by trying names.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

GENESIS = "0" * 64
FORGETTING = frozenset({"owner.forgotten", "app.forgotten"})
"""Acts that take details out; they say how many in `TAKEN_OUT`."""
TAKEN_OUT = "audit details"


class Head(NamedTuple):
    """A link of a chain, most often its last: its number and its hash."""

    seq: int = 0
    hash: str = GENESIS

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


START = Head()
"""Before the first entry."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act of somebody. `seq` and what follows are given when it joins the chains."""

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
    team_seq: int = 0
    team_previous: str = GENESIS
    team_hash: str = ""

    @property
    def is_redacted(self) -> bool:
        return bool(self.seal) and not self.salt

    @property
    def head(self) -> Head:
        return Head(self.seq, self.hash)

    @property
    def team_head(self) -> Head:
        return Head(self.team_seq, self.team_hash)


@dataclass(frozen=True, slots=True)
class Break:
    """Where a chain does not hold any more."""

    seq: int
    problem: str

    def __str__(self) -> str:
        return f"entry {self.seq}: {self.problem}"


def chained(entry: AuditEntry, after: Head, team_after: Head) -> AuditEntry:
    """The entry as the next link after both."""
    salt = secrets.token_hex(16)
    placed = replace(
        entry,
        seq=after.seq + 1,
        previous=after.hash,
        salt=salt,
        seal=sealed(entry.detail, salt),
        team_seq=team_after.seq + 1,
        team_previous=team_after.hash,
    )
    placed = replace(placed, team_hash=team_link(placed))
    return replace(placed, hash=link(placed))


def sealed(detail: Mapping[str, Any], salt: str) -> str:
    return hashlib.sha256(f"{salt}{_text(detail)}".encode()).hexdigest()


def team_link(entry: AuditEntry) -> str:
    """The hash of everything in the entry, the team's one before it included, and the detail by
    its seal."""
    # The word in front keeps it from ever being one of `old_link`.
    return _hash(["team", entry.team_seq, entry.team_previous, *_content(entry)])


def link(entry: AuditEntry) -> str:
    return _hash([entry.seq, entry.previous, entry.team_hash])


def old_link(entry: AuditEntry) -> str:
    """As the installation's chain was linked before teams had their own."""
    return _hash([entry.seq, entry.previous, *_content(entry)])


def _content(entry: AuditEntry) -> list[object]:
    told = [entry.team_id, entry.actor, entry.action, entry.subject, entry.at]
    return [*told, entry.seal or entry.detail]


def _hash(content: object) -> str:
    return hashlib.sha256(_text(content).encode()).hexdigest()


def _text(content: object) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


class Walk:
    """Along the installation's chain or a team's, any number of entries at a time.

    It goes on after a break, as if what is there were right, so that a second one is counted too.
    """

    def __init__(self, after: Head = START, *, team: bool = False, expect: Head = START) -> None:
        self.head = after
        self.entries = 0
        self.breaks = 0
        self.first: Break | None = None
        self.redacted = 0
        """Entries whose detail was taken out."""
        self.accounted = 0
        """Those that the purges in the log say they have taken out."""
        self._team = team
        self._expect = expect
        # Of those that were met: who begins in the middle has to believe the first of each.
        self._teams: dict[str, Head] = {}
        self._from_start = after == START

    def go(self, entries: Iterable[AuditEntry]) -> None:
        for entry in entries:
            problem = self._problem(entry)
            self.head = entry.team_head if self._team else entry.head
            self._teams[entry.team_id] = entry.team_head
            if problem:
                self.note(Break(self.head.seq, problem))
            self._count(entry)

    def end(self) -> None:
        """There are no more: was one that is known from elsewhere among them?"""
        if self.head.seq < self._expect.seq:
            what = f"it is gone; the log ends at entry {self.head.seq}, so its end was cut off"
            self.note(Break(self._expect.seq, what))

    def note(self, broken: Break) -> None:
        self.breaks += 1
        self.first = self.first or broken

    def _count(self, entry: AuditEntry) -> None:
        self.entries += 1
        self.redacted += entry.is_redacted
        taken = entry.detail.get(TAKEN_OUT, 0) if entry.action in FORGETTING else 0
        self.accounted += taken if isinstance(taken, int) else 0

    def _problem(self, entry: AuditEntry) -> str:
        if not self._team:
            place = (entry.head, entry.previous)
            problem = _misplaced(*place, self.head) or self._among_its_teams(entry)
        else:
            problem = _misplaced(entry.team_head, entry.team_previous, self.head)
        return problem or self._changed(entry)

    def _among_its_teams(self, entry: AuditEntry) -> str:
        before = self._teams.get(entry.team_id, START if self._from_start else None)
        if before is None:
            return ""
        problem = _misplaced(entry.team_head, entry.team_previous, before)
        return f"in its team's chain, {problem}" if problem else ""

    def _changed(self, entry: AuditEntry) -> str:
        head = entry.team_head if self._team else entry.head
        if not _is_as_written(entry, whole=not self._team):
            return "its content was changed"
        if head.seq == self._expect.seq and head.hash != self._expect.hash:
            return f"its hash is {head.hash}, and {self._expect.hash} was expected"
        return ""


def _misplaced(head: Head, previous: str, after: Head) -> str:
    if head.seq > after.seq + 1:
        return f"entry {after.seq + 1} is missing before it"
    if head.seq <= after.seq:
        return f"it stands after entry {after.seq}"
    return "" if previous == after.hash else "it does not follow the entry before it"


def _is_as_written(entry: AuditEntry, *, whole: bool) -> bool:
    if entry.team_hash != team_link(entry):
        return False
    if whole and entry.hash not in (link(entry), old_link(entry)):
        return False
    if entry.is_redacted:
        return not entry.detail
    return not entry.seal or entry.seal == sealed(entry.detail, entry.salt)


def first_break(
    entries: Iterable[AuditEntry], after: Head = START, *, team: bool = False
) -> Break | None:
    """The first place where an entry was changed, removed or put in; None when all is as written.

    `after` is the last good link before `entries`.
    """
    walk = Walk(after, team=team)
    walk.go(entries)
    return walk.first
