"""What is personal, taken out of the log of events, a little at a time."""

from collections.abc import Sequence
from functools import partial

from paddock.domain.audit import AuditEntry
from paddock.domain.event import Event
from paddock.ports.store import Store, Transaction

_PAGE = 500


async def clear(store: Store, subject: str) -> None:
    """Out of all events of a subject."""
    after = 0
    while last := await store.write(
        lambda tx, after=after: tx.events.forget(subject, after, _PAGE)  # type: ignore[misc]
    ):
        after = last


async def clear_app(store: Store, team_id: str, app: str) -> Sequence[int]:
    """Take an app out of all events that name it; the audit entries that do.

    Secrets of several apps have the same names: what was done to this one's is known only by
    what is told of it.
    """
    after = 0
    while events := await store.read(partial(_events, team_id=team_id, after=after)):
        if any(event.data.get("app") == app for event in events):
            await store.write(partial(_forget, team_id=team_id, after=after, app=app))
        after = events[-1].seq
    after, numbers = 0, []
    while entries := await store.read(partial(_entries, team_id=team_id, after=after)):
        numbers += [entry.team_seq for entry in entries if entry.detail.get("app") == app]
        after = entries[-1].team_seq
    return numbers


def _events(tx: Transaction, team_id: str, after: int) -> Sequence[Event]:
    return tx.events.after(after, _PAGE, team_id=team_id)


def _entries(tx: Transaction, team_id: str, after: int) -> Sequence[AuditEntry]:
    return tx.audit.after(after, _PAGE, team_id=team_id)


def _forget(tx: Transaction, team_id: str, after: int, app: str) -> None:
    # Read again: instead of an event that is not kept any more, the next one would be forgotten.
    for event in _events(tx, team_id, after):
        if event.data.get("app") == app:
            tx.events.forget(event.subject, event.seq - 1, 1)
