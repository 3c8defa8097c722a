"""Sealed values in the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from paddock.adapters.store.records import restored, split
from paddock.adapters.store.schema import secret as table
from paddock.domain.secret import Secret
from paddock.ports.store import Page

_COLUMNS = tuple(column.name for column in table.columns)


class SqlSecrets:
    """The port's `Secrets`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, team_id: str, scope: str, name: str) -> Secret | None:
        query = select(table).where(_is(team_id, scope, name))
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _from_row(found)

    def list(self, team_id: str, scope: str, page: Page) -> Sequence[Secret]:
        query = select(table).where(table.c.team_id == team_id, table.c.scope == scope)
        if page.after:
            query = query.where(table.c.name > page.after)
        query = query.order_by(table.c.name).limit(page.limit)
        return [_from_row(row) for row in self._connection.execute(query).mappings()]

    def sensitive(self, team_id: str) -> Sequence[Secret]:
        query = select(table).where(table.c.team_id == team_id, table.c.sensitive)
        query = query.order_by(table.c.scope, table.c.name)
        return [_from_row(row) for row in self._connection.execute(query).mappings()]

    def put(self, secret: Secret) -> None:
        row = split(secret, _COLUMNS)[0]
        same = _is(secret.team_id, secret.scope, secret.name)
        if not self._connection.execute(update(table).where(same).values(row)).rowcount:
            self._connection.execute(insert(table), row)

    def remove(self, team_id: str, scope: str, name: str) -> bool:
        return bool(
            self._connection.execute(delete(table).where(_is(team_id, scope, name))).rowcount
        )

    def sealed_otherwise(self, key_id: str, limit: int) -> Sequence[Secret]:
        query = select(table).where(table.c.key_id != key_id)
        query = query.order_by(table.c.team_id, table.c.scope, table.c.name).limit(limit)
        return [_from_row(row) for row in self._connection.execute(query).mappings()]


def _is(team_id: str, scope: str, name: str) -> ColumnElement[bool]:
    return and_(table.c.team_id == team_id, table.c.scope == scope, table.c.name == name)


def _from_row(row: Mapping[Any, Any]) -> Secret:
    return restored(row, Secret)
