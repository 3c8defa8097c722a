"""Snapshots in the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from paddock.adapters.store.columns import addable
from paddock.adapters.store.paging import newest_first
from paddock.adapters.store.records import restored, split
from paddock.adapters.store.schema import EXPIRES, HAS_OWNER
from paddock.adapters.store.schema import snapshot as table
from paddock.domain.errors import Conflict, NotFound
from paddock.domain.ids import is_id
from paddock.domain.records import SNAPSHOT_PREFIX, SnapshotRecord
from paddock.ports.store import Page

_APART = ("body", "size_bytes")
_COLUMNS = tuple(column.name for column in table.columns if column.name not in _APART)


class SqlSnapshots:
    """The port's `Snapshots`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, snapshot: SnapshotRecord) -> None:
        self._claim_name(snapshot)
        self._connection.execute(insert(table), to_row(snapshot))

    def get(self, team_id: str, name_or_id: str) -> SnapshotRecord | None:
        query = select(table)
        if is_id(name_or_id, SNAPSHOT_PREFIX):
            query = query.where(table.c.id == name_or_id)
            if team_id:
                query = query.where(table.c.team_id == team_id)
        else:
            query = query.where(table.c.team_id == team_id, table.c.name == name_or_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else from_row(found)

    def list(self, team_id: str, sandbox_id: str, page: Page) -> Sequence[SnapshotRecord]:
        query = newest_first(select(table), table.c.id, page)
        if sandbox_id:
            query = query.where(table.c.sandbox_id == sandbox_id)
        if team_id:
            # A sandbox has few snapshots and a team many: concatenated, so that with a sandbox
            # its index is the one that is taken.
            owner = table.c.team_id.concat("") if sandbox_id else table.c.team_id
            query = query.where(owner == team_id)
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def owned(self, team_id: str, owner: str, page: Page) -> Sequence[SnapshotRecord]:
        query = newest_first(select(table), table.c.id, page)
        query = query.where(table.c.team_id == team_id, table.c.owner == owner, HAS_OWNER)
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def replace(self, snapshot: SnapshotRecord) -> None:
        self._claim_name(snapshot)
        row = to_row(snapshot)
        same = (table.c.id == row.pop("id"), table.c.team_id == row.pop("team_id"))
        changed = self._connection.execute(update(table).where(*same).values(row))
        if not changed.rowcount:
            raise NotFound(f"there is no snapshot {snapshot.id}")

    def remove(self, snapshot_id: str) -> None:
        self._connection.execute(delete(table).where(table.c.id == snapshot_id))

    def expired(self, now: float, limit: int) -> Sequence[SnapshotRecord]:
        query = (
            select(table)
            .where(EXPIRES, table.c.expires_at <= now, table.c.ref != "")
            .order_by(table.c.expires_at)
            .limit(limit)
        )
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def unfinished(self, limit: int) -> Sequence[SnapshotRecord]:
        query = select(table).where(table.c.ref == "").order_by(table.c.id).limit(limit)
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def _claim_name(self, snapshot: SnapshotRecord) -> None:
        query = select(table.c.id).where(
            table.c.team_id == snapshot.team_id,
            table.c.name == snapshot.name,
            table.c.id != snapshot.id,
        )
        holder = self._connection.execute(query).scalar()
        if holder is not None:
            raise Conflict(
                f"the name {snapshot.name} belongs to snapshot {holder}",
                remediation="choose another name, or delete that snapshot first",
            )


def to_row(snapshot: SnapshotRecord) -> dict[str, Any]:
    row, body = split(snapshot, _COLUMNS)
    size = None if snapshot.size_bytes is None else addable(snapshot.size_bytes)
    return row | {"body": body, "size_bytes": size}


def from_row(row: Mapping[Any, Any]) -> SnapshotRecord:
    return restored(row["body"] | {name: row[name] for name in _COLUMNS}, SnapshotRecord)
