"""Sources of events in the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, insert, select, update

from paddock.adapters.store.records import restored, split
from paddock.adapters.store.schema import event_source as table
from paddock.domain.intake import SourceState

_COLUMNS = tuple(column.name for column in table.columns)


class SqlSources:
    """The port's `Sources`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, sandbox_id: str, source: str) -> SourceState | None:
        query = select(table).where(table.c.sandbox_id == sandbox_id, table.c.source == source)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _from_row(found)

    def list(self, sandbox_id: str) -> Sequence[SourceState]:
        query = select(table).where(table.c.sandbox_id == sandbox_id).order_by(table.c.source)
        return [_from_row(row) for row in self._connection.execute(query).mappings()]

    def put(self, state: SourceState) -> None:
        row = split(state, _COLUMNS)[0]
        same = and_(table.c.sandbox_id == state.sandbox_id, table.c.source == state.source)
        if not self._connection.execute(update(table).where(same).values(row)).rowcount:
            self._connection.execute(insert(table), row)


def _from_row(row: Mapping[Any, Any]) -> SourceState:
    return restored(row, SourceState)
