"""The audit chain in the database."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import (
    Connection,
    Text,
    bindparam,
    func,
    insert,
    literal,
    or_,
    select,
    type_coerce,
    union_all,
    update,
)

from paddock.adapters.store.columns import encode
from paddock.adapters.store.records import restored
from paddock.adapters.store.schema import audit as table
from paddock.domain.audit import START, AuditEntry, Head, chained
from paddock.ports.store import ANY_TEAM

# Made once: building a statement takes longer than SQLite needs to execute it.
_INSERT = insert(table)
_LAST = select(literal(0).label("of"), table.c.seq, table.c.hash).order_by(table.c.seq.desc())
_TEAMS_LAST = (
    select(literal(1).label("of"), table.c.team_seq, table.c.team_hash)
    .where(table.c.team_id == bindparam("team"))
    .order_by(table.c.team_seq.desc())
)
# Both at once: each question is a way to the server and back.
_HEADS = union_all(
    select(_LAST.limit(1).subquery("last")), select(_TEAMS_LAST.limit(1).subquery("teams_last"))
)
# As text: somebody may have written there what is no JSON, and it has to be read to be told.
_COLUMNS = [
    type_coerce(column, Text).label(column.name) if column.name == "detail" else column
    for column in table.c
]


class SqlAudit:
    """The port's `Audit`.

    Whoever writes holds the one lock for writing until the commit, so nobody else can join the
    chains at the same place.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, entries: Sequence[AuditEntry]) -> Sequence[AuditEntry]:
        last, of_teams = START, dict[str, Head]()
        linked = []
        for entry in entries:
            if entry.team_id not in of_teams:
                there, of_teams[entry.team_id] = self._heads(entry.team_id)
                last = max(last, there)
            # The hash is of what will be read back: `{1: "a"}` comes back as `{"1": "a"}`.
            as_stored = replace(entry, at=float(entry.at), detail=json.loads(encode(entry.detail)))
            linked.append(chained(as_stored, last, of_teams[entry.team_id]))
            last, of_teams[entry.team_id] = linked[-1].head, linked[-1].team_head
        if linked:
            self._connection.execute(_INSERT, [_to_row(entry) for entry in linked])
        return linked

    def after(self, seq: int, limit: int, *, team_id: str = ANY_TEAM) -> Sequence[AuditEntry]:
        number = table.c.team_seq if team_id else table.c.seq
        query = select(*_COLUMNS).where(number > seq).order_by(number).limit(limit)
        if team_id:
            query = query.where(table.c.team_id == team_id)
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def redact(
        self, team_id: str, subjects: Sequence[str], numbers: Sequence[int] = ()
    ) -> tuple[int, int]:
        these = or_(table.c.subject.in_(subjects), table.c.team_seq.in_(numbers))
        about = (table.c.team_id == team_id, these)
        still = (*about, table.c.salt != "")
        done = self._connection.execute(update(table).where(*still).values(detail={}, salt=""))
        fixed = select(func.count()).where(*about, table.c.seal == "")
        return done.rowcount, self._connection.execute(fixed).scalar_one()

    def head(self, team_id: str = ANY_TEAM) -> Head:
        last, of_team = self._heads(team_id)
        return of_team if team_id else last

    def _heads(self, team_id: str) -> tuple[Head, Head]:
        found = {
            row[0]: Head(*row[1:]) for row in self._connection.execute(_HEADS, {"team": team_id})
        }
        return found.get(0, START), found.get(1, START)


def _to_row(entry: AuditEntry) -> dict[str, Any]:
    # asdict() would copy what it holds, name by name.
    return {field.name: getattr(entry, field.name) for field in fields(entry)}


def from_row(row: Mapping[Any, Any]) -> AuditEntry:
    return restored({**row, "detail": _detail(row["detail"])}, AuditEntry)


def _detail(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"unreadable": str(text)}
