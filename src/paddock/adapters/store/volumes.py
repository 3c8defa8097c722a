"""Volumes in the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from paddock.adapters.store.paging import newest_first
from paddock.adapters.store.records import restored, split
from paddock.adapters.store.schema import volume as table
from paddock.domain.errors import Conflict
from paddock.domain.ids import is_id
from paddock.domain.volume import VOLUME_PREFIX, VolumeRecord, VolumeState
from paddock.ports.store import Page

_COLUMNS = tuple(column.name for column in table.columns)


class SqlVolumes:
    """The port's `Volumes`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, volume: VolumeRecord) -> None:
        if (holder := self.get(volume.team_id, volume.name)) is not None:
            raise Conflict(
                f"the name {volume.name} belongs to volume {holder.id}",
                remediation="choose another name, or delete that volume first",
            )
        self._connection.execute(insert(table), split(volume, _COLUMNS)[0])

    def get(self, team_id: str, name_or_id: str) -> VolumeRecord | None:
        column = table.c.id if is_id(name_or_id, VOLUME_PREFIX) else table.c.name
        query = select(table).where(column == name_or_id)
        if team_id or column is table.c.name:
            query = query.where(table.c.team_id == team_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _from_row(found)

    def list(self, team_id: str, page: Page) -> Sequence[VolumeRecord]:
        query = newest_first(select(table), table.c.id, page).where(table.c.team_id == team_id)
        return [_from_row(row) for row in self._connection.execute(query).mappings()]

    def set_state(self, volume_id: str, state: VolumeState) -> None:
        self._connection.execute(update(table).where(table.c.id == volume_id).values(state=state))

    def remove(self, volume_id: str) -> None:
        self._connection.execute(delete(table).where(table.c.id == volume_id))

    def unfinished(self, limit: int) -> Sequence[VolumeRecord]:
        query = select(table).where(table.c.state != VolumeState.READY)
        query = query.order_by(table.c.id).limit(limit)
        return [_from_row(row) for row in self._connection.execute(query).mappings()]


def _from_row(row: Mapping[Any, Any]) -> VolumeRecord:
    return restored(row, VolumeRecord)
