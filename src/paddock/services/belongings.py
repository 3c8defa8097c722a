"""What belongs to an owner or an app, as the store has it at one moment."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from paddock.domain.purge import Whose
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.secret import Secret, scope_of
from paddock.ports.store import Page, SandboxFilter, Transaction

_PAGE = 500
_EVERY = frozenset(SandboxState)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Belongings:
    """What there is, deleted sandboxes included as long as there are records of them."""

    boxes: Sequence[SandboxRecord]
    copies: Sequence[SnapshotRecord]
    secrets: Sequence[Secret]

    def __bool__(self) -> bool:
        return bool(self.boxes or self.copies or self.secrets)

    @property
    def ids(self) -> Iterator[str]:
        yield from (box.id for box in self.boxes)
        yield from (copy.id for copy in self.copies)


def belongings(
    tx: Transaction, team_id: str, whose: Whose, *, most: int | None = None
) -> Belongings:
    """At most so many sandboxes, all unless said; with them all the rest, which is found by them
    and would not be any more when their records are gone."""
    boxes = list(islice(_sandboxes(tx, team_id, whose), most))
    of = frozenset(box.id for box in boxes)
    return Belongings(
        boxes,
        list(_snapshots(tx, team_id, whose, of=of)),
        list(_secrets(tx, team_id, whose.app)) if whose.app else [],
    )


def _sandboxes(tx: Transaction, team_id: str, whose: Whose) -> Iterator[SandboxRecord]:
    wanted = SandboxFilter(states=_EVERY, owner=whose.owner)
    found = paged(lambda page: tx.sandboxes.list(team_id, wanted, page), lambda box: box.id)
    return (box for box in found if whose.app in ("", box.app))


def _snapshots(
    tx: Transaction, team_id: str, whose: Whose, *, of: frozenset[str]
) -> Iterator[SnapshotRecord]:
    if whose.owner:
        return paged(
            lambda page: tx.snapshots.owned(team_id, whose.owner, page), lambda copy: copy.id
        )
    found = paged(lambda page: tx.snapshots.list(team_id, "", page), lambda copy: copy.id)
    # Snapshots from before they had an app of their own have their sandbox's.
    return (copy for copy in found if copy.app == whose.app or copy.sandbox_id in of)


def _secrets(tx: Transaction, team_id: str, app: str) -> Iterator[Secret]:
    scope = scope_of(app)
    return paged(lambda page: tx.secrets.list(team_id, scope, page), lambda one: one.name)


def paged(
    read: Callable[[Page], Sequence[T]], place: Callable[[T], str], limit: int = _PAGE
) -> Iterator[T]:
    page = read(Page(limit))
    while page:
        yield from page
        page = read(Page(limit, place(page[-1]))) if len(page) == limit else ()
