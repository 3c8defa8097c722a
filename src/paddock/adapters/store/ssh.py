"""Ways into sandboxes by SSH, in the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, case, delete, func, insert, select, update

from paddock.adapters.store.paging import newest_first
from paddock.adapters.store.records import restored, split
from paddock.adapters.store.schema import ssh_access as table
from paddock.domain.errors import NotFound
from paddock.domain.ssh import Proof, SshAccess
from paddock.ports.store import Page

_COLUMNS = tuple(column.name for column in table.columns)
_MOST_OF_ONE_KEY = 100


class SqlSshAccesses:
    """The port's `SshAccesses`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, access: SshAccess) -> None:
        self._connection.execute(insert(table), _to_row(access))

    def get(self, access_id: str, sandbox_id: str = "") -> SshAccess | None:
        query = select(table).where(table.c.id == access_id)
        if sandbox_id:
            query = query.where(table.c.sandbox_id == sandbox_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _from_row(found)

    def with_key(self, fingerprint: str) -> Sequence[SshAccess]:
        query = select(table).where(table.c.digest == fingerprint, table.c.proof == Proof.KEY)
        query = newest_first(query, table.c.id, Page(_MOST_OF_ONE_KEY))
        return [_from_row(row) for row in self._connection.execute(query).mappings()]

    def list(self, team_id: str, sandbox_id: str, page: Page) -> Sequence[SshAccess]:
        query = select(table).where(table.c.team_id == team_id, table.c.sandbox_id == sandbox_id)
        query = newest_first(query, table.c.id, page)
        return [_from_row(row) for row in self._connection.execute(query).mappings()]

    def replace(self, access: SshAccess) -> None:
        row = _to_row(access)
        used = row["used_at"]
        if used is not None:
            row["used_at"] = case((table.c.used_at > used, table.c.used_at), else_=used)
        else:
            row["used_at"] = table.c.used_at
        row["revoked_at"] = func.coalesce(table.c.revoked_at, row["revoked_at"])
        changed = self._connection.execute(
            update(table).where(table.c.id == row.pop("id")).values(row)
        )
        if not changed.rowcount:
            raise NotFound(f"there is no access {access.id}")

    def prune(self, expired_before: float, limit: int) -> int:
        old = select(table.c.id).where(table.c.expires_at < expired_before).limit(limit)
        return self._connection.execute(delete(table).where(table.c.id.in_(old))).rowcount


def _to_row(access: SshAccess) -> dict[str, Any]:
    return split(access, _COLUMNS)[0]


def _from_row(row: Mapping[Any, Any]) -> SshAccess:
    return restored(row, SshAccess)
