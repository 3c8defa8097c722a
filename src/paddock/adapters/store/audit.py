"""The audit chain in the database."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Connection, func, insert, or_, select, update

from paddock.adapters.store.columns import encode
from paddock.adapters.store.records import restored
from paddock.adapters.store.schema import audit as table
from paddock.domain.audit import GENESIS, AuditEntry, chained
from paddock.ports.store import ANY_TEAM

# Made once: building a statement takes longer than SQLite needs to execute it.
_INSERT = insert(table)
_HEAD = select(table.c.seq, table.c.hash).order_by(table.c.seq.desc()).limit(1)


class SqlAudit:
    """The port's `Audit`.

    Whoever writes holds the one lock for writing until the commit, so nobody else can join the
    chain at the same place.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, entries: Sequence[AuditEntry]) -> Sequence[AuditEntry]:
        if not entries:
            return []
        seq, previous = self.head()
        linked = []
        for entry in entries:
            seq += 1
            # The hash is of what will be read back: `{1: "a"}` comes back as `{"1": "a"}`.
            as_stored = replace(entry, at=float(entry.at), detail=json.loads(encode(entry.detail)))
            linked.append(chained(as_stored, seq, previous))
            previous = linked[-1].hash
        self._connection.execute(_INSERT, [_to_row(entry) for entry in linked])
        return linked

    def after(self, seq: int, limit: int, *, team_id: str = ANY_TEAM) -> Sequence[AuditEntry]:
        query = select(table).where(table.c.seq > seq).order_by(table.c.seq).limit(limit)
        if team_id:
            query = query.where(table.c.team_id == team_id)
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def redact(
        self, team_id: str, subjects: Sequence[str], numbers: Sequence[int] = ()
    ) -> tuple[int, int]:
        these = or_(table.c.subject.in_(subjects), table.c.seq.in_(numbers))
        about = (table.c.team_id == team_id, these)
        still = (*about, table.c.salt != "")
        done = self._connection.execute(update(table).where(*still).values(detail={}, salt=""))
        fixed = select(func.count()).where(*about, table.c.seal == "")
        return done.rowcount, self._connection.execute(fixed).scalar_one()

    def head(self) -> tuple[int, str]:
        found = self._connection.execute(_HEAD).first()
        return (0, GENESIS) if found is None else (found.seq, found.hash)


def _to_row(entry: AuditEntry) -> dict[str, Any]:
    # asdict() would copy what it holds, name by name.
    return {field.name: getattr(entry, field.name) for field in fields(entry)}


def from_row(row: Mapping[Any, Any]) -> AuditEntry:
    return restored(row, AuditEntry)
