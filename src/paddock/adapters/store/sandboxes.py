"""Sandboxes in the database, and the index of their labels."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    TextClause,
    and_,
    bindparam,
    case,
    delete,
    insert,
    select,
    update,
)

from paddock.adapters.store.paging import begins_with, newest_first
from paddock.adapters.store.records import restored, split
from paddock.adapters.store.schema import IS_DELETED, NOT_DELETED
from paddock.adapters.store.schema import sandbox as table
from paddock.adapters.store.schema import sandbox_label as label
from paddock.domain.errors import Conflict, NotFound
from paddock.domain.ids import is_id
from paddock.domain.records import SANDBOX_PREFIX, SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.ports.store import Page, SandboxFilter

_COLUMNS = (
    *("id", "team_id", "name", "state", "provider", "ref"),
    *("created_at", "changed_at", "version", "labels"),
)


class SqlSandboxes:
    """The port's `Sandboxes`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, sandbox: SandboxRecord) -> None:
        self._claim_name(sandbox)
        self._connection.execute(insert(table), to_row(sandbox))
        self._index(sandbox)

    def get(self, team_id: str, name_or_id: str) -> SandboxRecord | None:
        query = select(table)
        if is_id(name_or_id, SANDBOX_PREFIX):
            query = query.where(table.c.id == name_or_id)
            if team_id:
                query = query.where(table.c.team_id == team_id)
        else:
            query = query.where(table.c.team_id == team_id, table.c.name == name_or_id, NOT_DELETED)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else from_row(found)

    def list(self, team_id: str, wanted: SandboxFilter, page: Page) -> Sequence[SandboxRecord]:
        query = listing(team_id, wanted, page)
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def replace(self, sandbox: SandboxRecord) -> SandboxRecord:
        self._claim_name(sandbox)
        row = to_row(replace(sandbox, version=sandbox.version + 1))
        # What was seen in the meantime made no new version, and is not to be forgotten.
        seen = row["active_at"]
        row["active_at"] = case((table.c.active_at > seen, table.c.active_at), else_=seen)
        changed = self._connection.execute(
            update(table)
            .where(
                table.c.id == row.pop("id"),
                table.c.team_id == row.pop("team_id"),
                table.c.version == sandbox.version,
            )
            .values(row)
            .returning(table)
        )
        stored = changed.mappings().first()
        if stored is None:
            raise self._changed(sandbox)
        self._connection.execute(delete(label).where(label.c.sandbox_id == sandbox.id))
        self._index(sandbox)
        return from_row(stored)

    def touch(self, active: Mapping[str, float]) -> None:
        if not active:
            return
        self._connection.execute(
            update(table)
            .where(table.c.id == bindparam("touched"), table.c.active_at < bindparam("seen"))
            .values(active_at=bindparam("seen")),
            [{"touched": name, "seen": seen} for name, seen in active.items()],
        )

    def purge(self, deleted_before: float, limit: int) -> int:
        forgotten = delete(table).where(table.c.id.in_(purgeable(deleted_before, limit)))
        return self._connection.execute(forgotten).rowcount

    def _claim_name(self, sandbox: SandboxRecord) -> None:
        if sandbox.state is SandboxState.DELETED:
            return
        query = select(table.c.id).where(
            table.c.team_id == sandbox.team_id,
            table.c.name == sandbox.name,
            table.c.id != sandbox.id,
            NOT_DELETED,
        )
        holder = self._connection.execute(query).scalar()
        if holder is not None:
            raise Conflict(
                f"the name {sandbox.name} belongs to sandbox {holder}",
                remediation="choose another name, or delete that sandbox first",
            )

    def _index(self, sandbox: SandboxRecord) -> None:
        if not sandbox.labels:
            return
        self._connection.execute(
            insert(label),
            [
                {
                    "sandbox_id": sandbox.id,
                    "team_id": sandbox.team_id,
                    "name": name,
                    "value": value,
                }
                for name, value in sandbox.labels.items()
            ],
        )

    def _changed(self, sandbox: SandboxRecord) -> Conflict | NotFound:
        if self.get(sandbox.team_id, sandbox.id) is None:
            return NotFound(f"there is no sandbox {sandbox.id}")
        return Conflict(
            f"sandbox {sandbox.name} ({sandbox.id}) was changed since it was read",
            remediation="read it again, and repeat what was to be done",
        )


def listing(team_id: str, wanted: SandboxFilter, page: Page) -> Select[Any]:
    """The query for a page. With labels, the index of the first one is what is walked along."""
    query, key = select(table), table.c.id
    for number, (name, value) in enumerate(sorted(wanted.labels.items())):
        one = label.alias()
        same = and_(one.c.sandbox_id == table.c.id, one.c.name == name, one.c.value == value)
        if team_id:
            same &= one.c.team_id == team_id
        query = query.join(one, same)
        key = key if number else one.c.sandbox_id
    query = newest_first(query, key, page)
    if team_id:
        query = query.where(table.c.team_id == team_id)
    query = query.where(*_in_states(wanted.states))
    if wanted.name_prefix:
        query = query.where(begins_with(table.c.name, wanted.name_prefix))
    if wanted.provider:
        query = query.where(table.c.provider == wanted.provider)
    return query


def purgeable(deleted_before: float, limit: int) -> Select[Any]:
    return (
        select(table.c.id)
        .where(IS_DELETED, table.c.changed_at < deleted_before)
        .order_by(table.c.changed_at)
        .limit(limit)
    )


def _in_states(states: frozenset[SandboxState]) -> list[ColumnElement[bool] | TextClause]:
    """One state has an index in the right order. For several, those that are not deleted are gone
    through in order: the concatenation keeps SQLite from gathering and sorting all of them."""
    if len(states) == 1:
        return [table.c.state == next(iter(states))]
    found: list[ColumnElement[bool] | TextClause] = []
    if SandboxState.DELETED not in states:
        found.append(NOT_DELETED)
    if states:
        found.append(table.c.state.concat("").in_(sorted(states)))
    return found


def to_row(sandbox: SandboxRecord) -> dict[str, Any]:
    row, body = split(sandbox, _COLUMNS)
    row["active_at"] = body["clock"].pop("active_at")
    return row | {"body": body}


def from_row(row: Mapping[Any, Any]) -> SandboxRecord:
    fields = row["body"] | {name: row[name] for name in _COLUMNS}
    fields["clock"] = fields["clock"] | {"active_at": row["active_at"]}
    return restored(fields, SandboxRecord)
