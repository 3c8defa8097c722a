"""Tokens in the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, case, func, insert, select, update

from paddock.adapters.store.access_schema import token as table
from paddock.adapters.store.paging import newest_first
from paddock.adapters.store.records import restored, split
from paddock.domain.errors import NotFound
from paddock.domain.team import Token
from paddock.ports.store import Page

_COLUMNS = tuple(column.name for column in table.columns)


class SqlTokens:
    """The port's `Tokens`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, token: Token) -> None:
        self._connection.execute(insert(table), to_row(token))

    def get(self, token_id: str, team_id: str = "") -> Token | None:
        query = select(table).where(table.c.id == token_id)
        if team_id:
            query = query.where(table.c.team_id == team_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else from_row(found)

    def list(self, team_id: str, page: Page, *, person_id: str = "") -> Sequence[Token]:
        query = newest_first(select(table), table.c.id, page)
        if team_id:
            query = query.where(table.c.team_id == team_id)
        if person_id:
            query = query.where(table.c.person_id == person_id)
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def replace(self, token: Token) -> None:
        row = to_row(token)
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
            raise NotFound(f"there is no token {token.id}")

    def revoke_of(self, person_id: str, now: float) -> Sequence[str]:
        changed = self._connection.execute(
            update(table)
            .where(table.c.person_id == person_id, table.c.revoked_at.is_(None))
            .values(revoked_at=now)
            .returning(table.c.id)
        )
        return [row.id for row in changed]


def to_row(token: Token) -> dict[str, Any]:
    return split(token, _COLUMNS)[0]


def from_row(row: Mapping[Any, Any]) -> Token:
    return restored(row, Token)
