"""The log of events in the database."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from sqlalchemy import Connection, Integer, Select, bindparam, delete, func, insert, select, update

from paddock.adapters.store.columns import encode
from paddock.adapters.store.quotas import ROW, count_stored, forget_empty
from paddock.adapters.store.records import restored
from paddock.adapters.store.schema import counter
from paddock.adapters.store.schema import event as table
from paddock.domain.event import Event, remainder
from paddock.ports.store import ANY_TEAM

_COUNTER = counter.c.name == "event"
# Made once: building a statement takes longer than SQLite needs to execute it.
_LAST = select(counter.c.last).where(_COUNTER)
_TAKE = (
    update(counter)
    .where(_COUNTER)
    .values(last=counter.c.last + bindparam("count", type_=Integer))
    .returning(counter.c.last)
)
_INSERT = insert(table)
_SIZES = (
    select(table.c.team_id, table.c.subject, func.sum(func.length(table.c.data) + ROW))
    .where(table.c.seq <= bindparam("last"))
    .group_by(table.c.team_id, table.c.subject)
)
_FORGET = (
    update(table)
    .where(table.c.seq == bindparam("which"))
    .values(data=bindparam("left", type_=table.c.data.type))
)


class SqlEvents:
    """The port's `Events`.

    Whoever writes holds the one lock for writing until the commit, so numbers become visible in
    the order in which they were given.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.appended: list[Event] = []

    def append(self, events: Sequence[Event]) -> Sequence[Event]:
        if not events:
            return []
        last = self._connection.execute(_TAKE, {"count": len(events)}).scalar_one()
        first = last - len(events) + 1
        numbered = [replace(event, seq=seq) for seq, event in enumerate(events, start=first)]
        self._connection.execute(_INSERT, [to_row(event) for event in numbered])
        count_stored(self._connection, ((e.team_id, e.subject, _size(e.data)) for e in numbered))
        self.appended += numbered
        return numbered

    def after(
        self,
        seq: int,
        limit: int,
        *,
        team_id: str = ANY_TEAM,
        subject: str = "",
        kinds: frozenset[str] = frozenset(),
    ) -> Sequence[Event]:
        query = following(seq, limit, team_id, subject)
        if kinds:
            query = query.where(table.c.kind.in_(sorted(kinds)))
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def before(self, seq: int, limit: int, *, subject: str) -> Sequence[Event]:
        query = select(table).where(table.c.subject == subject, table.c.seq < seq)
        query = query.order_by(table.c.seq.desc()).limit(limit)
        rows = self._connection.execute(query).mappings().all()
        return [from_row(row) for row in reversed(rows)]

    def forget(self, subject: str, after: int, limit: int) -> int:
        query = following(after, limit, ANY_TEAM, subject).with_only_columns(
            table.c.seq, table.c.team_id, table.c.data
        )
        rows = self._connection.execute(query).all()
        if not rows:
            return 0
        told = [{"which": row.seq, "left": remainder(row.data)} for row in rows]
        self._connection.execute(_FORGET, told)
        gone = [_size(each["left"]) - _size(row.data) for each, row in zip(told, rows, strict=True)]
        count_stored(
            self._connection,
            ((row.team_id, subject, size) for row, size in zip(rows, gone, strict=True)),
        )
        return int(rows[-1].seq)

    def last_seq(self) -> int:
        last: int = self._connection.execute(_LAST).scalar_one()
        return last

    def first_seq(self) -> int:
        return self._connection.execute(select(func.min(table.c.seq))).scalar() or 0

    def prune(self, before: float, limit: int) -> int:
        oldest = self._connection.execute(
            select(table.c.seq, table.c.at).order_by(table.c.seq).limit(limit)
        )
        # From the beginning only: a gap further on could not be told from `first_seq`.
        old = [row.seq for row in takewhile(lambda row: row.at < before, oldest)]
        if not old:
            return 0
        gone = self._connection.execute(_SIZES, {"last": old[-1]}).all()
        count_stored(
            self._connection, ((team, subject, -int(size)) for team, subject, size in gone)
        )
        forget_empty(self._connection)
        return self._connection.execute(delete(table).where(table.c.seq <= old[-1])).rowcount


def _size(data: Any) -> int:
    """Return the stored size in bytes, equal to SQL `length` because the text is ASCII."""
    return len(encode(data)) + ROW


def following(seq: int, limit: int, team_id: str, subject: str) -> Select[Any]:
    query = select(table).where(table.c.seq > seq).order_by(table.c.seq).limit(limit)
    if subject:
        query = query.where(table.c.subject == subject)
    if team_id:
        # A subject has few events and a team many: concatenated, so that with a subject its
        # index is the one that is taken.
        owner = table.c.team_id.concat("") if subject else table.c.team_id
        query = query.where(owner == team_id)
    return query


def to_row(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "team_id": event.team_id,
        "kind": event.kind,
        "subject": event.subject,
        "at": event.at,
        "actor": event.actor,
        "data": event.data,
    }


def from_row(row: Mapping[Any, Any]) -> Event:
    return restored(row, Event)
