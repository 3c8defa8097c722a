"""Idempotency keys in the database."""

from sqlalchemy import Connection, delete, insert, select, tuple_

from paddock.adapters.store.schema import idempotency_key as table
from paddock.domain.errors import Conflict


class SqlKeys:
    """The port's `Keys`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def claim(self, team_id: str, key: str, *, fingerprint: str, object_id: str, now: float) -> str:
        query = select(table).where(table.c.team_id == team_id, table.c.key == key)
        found = self._connection.execute(query).first()
        if found is None:
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
        if found.fingerprint != fingerprint:
            raise Conflict(
                f"the idempotency key {key[:80]!r} was used for another request, which made "
                f"{found.object_id}",
                remediation="use a new key for each request that is not a repetition",
            )
        earlier: str = found.object_id
        return earlier

    def release(self, team_id: str, object_id: str) -> None:
        same = (table.c.team_id == team_id, table.c.object_id == object_id)
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
