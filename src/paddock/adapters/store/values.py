"""Named values in the database."""

import json
from collections.abc import Mapping

from sqlalchemy import Connection, delete, func, insert, select, update

from paddock.adapters.store.columns import encode
from paddock.adapters.store.paging import begins_with
from paddock.adapters.store.schema import value as table


class SqlValues:
    """The port's `Values`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, name: str) -> object | None:
        query = select(table.c.value).where(table.c.name == name)
        found: object | None = self._connection.execute(query).scalar()
        return found

    def all(self, prefix: str) -> Mapping[str, object]:
        query = select(table).order_by(table.c.name)
        if prefix:
            query = query.where(begins_with(table.c.name, prefix))
        return {row.name: row.value for row in self._connection.execute(query)}

    def count(self, prefix: str) -> int:
        query = select(func.count()).where(begins_with(table.c.name, prefix))
        return self._connection.execute(query).scalar_one()

    def put(self, name: str, value: object) -> None:
        changed = self._connection.execute(
            update(table).where(table.c.name == name).values(value=value)
        )
        if not changed.rowcount:
            self._connection.execute(insert(table), {"name": name, "value": value})

    def add(self, name: str, value: object) -> object:
        query = select(table.c.value).where(table.c.name == name)
        found = self._connection.execute(query).first()
        if found is not None:
            return found.value
        self._connection.execute(insert(table), {"name": name, "value": value})
        as_stored: object = json.loads(encode(value))
        return as_stored

    def remove(self, name: str) -> None:
        self._connection.execute(delete(table).where(table.c.name == name))
