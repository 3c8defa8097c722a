"""Idempotency keys in the database."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, tuple_, update

from paddock.adapters.store.schema import idempotency_key as table
from paddock.domain.errors import Conflict
from paddock.domain.repetition import KeptAnswer


class SqlKeys:
    """The port's `Keys`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def claim(self, team_id: str, key: str, *, fingerprint: str, object_id: str, now: float) -> str:
        if earlier := self.find(team_id, key, fingerprint=fingerprint):
            return earlier
        self._connection.execute(
            insert(table),
            {
                "team_id": team_id,
                "key": key,
                "fingerprint": fingerprint,
                "object_id": object_id,
                "created_at": now,
            },
        )
        return object_id

    def find(self, team_id: str, key: str, *, fingerprint: str) -> str | None:
        query = select(table).where(table.c.team_id == team_id, table.c.key == key)
        found = self._connection.execute(query).first()
        if found is None:
            return None
        if found.fingerprint != fingerprint:
            raise Conflict(
                f"the idempotency key {key[:80]!r} was used for another request, which made "
                f"{found.object_id}",
                remediation="use a new key unless the same token repeats the same request",
            )
        earlier: str = found.object_id
        return earlier

    def keep(self, answer: KeptAnswer) -> None:
        same = (table.c.team_id == answer.team_id, table.c.key == answer.key)
        self._connection.execute(
            update(table)
            .where(*same)
            .values(object_id=answer.object_id, sealed=answer.sealed, key_id=answer.key_id)
        )

    def answer(self, team_id: str, key: str) -> KeptAnswer | None:
        query = select(table).where(table.c.team_id == team_id, table.c.key == key)
        found = self._connection.execute(query.where(table.c.sealed != "")).first()
        return None if found is None else _from_row(found)

    def sealed_otherwise(self, key_id: str, limit: int) -> Sequence[KeptAnswer]:
        query = select(table).where(table.c.key_id.not_in(("", key_id)))
        query = query.order_by(table.c.team_id, table.c.key).limit(limit)
        return [_from_row(row) for row in self._connection.execute(query)]

    def release(self, team_id: str, object_id: str) -> None:
        same = (table.c.team_id == team_id, table.c.object_id == object_id)
        self._connection.execute(delete(table).where(*same))

    def drop(self, team_id: str, key: str) -> None:
        same = (table.c.team_id == team_id, table.c.key == key)
        self._connection.execute(delete(table).where(*same))

    def prune(self, before: float, limit: int) -> int:
        oldest = (
            select(table.c.team_id, table.c.key)
            .where(table.c.created_at < before)
            .order_by(table.c.created_at)
            .limit(limit)
        )
        same = tuple_(table.c.team_id, table.c.key).in_(oldest)
        return self._connection.execute(delete(table).where(same)).rowcount


def _from_row(row: Row[Any]) -> KeptAnswer:
    return KeptAnswer(
        row.team_id, row.key, row.fingerprint, row.object_id, row.key_id, sealed=row.sealed
    )
