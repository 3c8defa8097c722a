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
    exists,
    insert,
    select,
    update,
)

from paddock.adapters.store.columns import addable
from paddock.adapters.store.paging import begins_with, newest_first
from paddock.adapters.store.records import restored, split
from paddock.adapters.store.schema import HAS_OWNER, IS_DELETED, NOT_DELETED
from paddock.adapters.store.schema import sandbox as table
from paddock.adapters.store.schema import sandbox_label as label
from paddock.adapters.store.task_schema import task
from paddock.domain.errors import Conflict, NotFound
from paddock.domain.ids import is_id
from paddock.domain.records import SANDBOX_PREFIX, SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.ports.store import Page, SandboxFilter

_COLUMNS = (
    *("id", "team_id", "name", "state", "provider", "ref"),
    *("created_at", "changed_at", "version", "labels", "owner", "identity"),
)
_ADDED_UP = ("cpus", "memory_mib", "disk_mib")
_NEW = "new_"
_KEPT = ("id", "team_id")
# Made once: building a statement takes longer than SQLite needs to execute it.
_INSERT = insert(table)
_BY_ID = select(table).where(table.c.id == bindparam("id"))
_BY_ID_IN_TEAM = _BY_ID.where(table.c.team_id == bindparam("team_id"))
_BY_NAME = select(table).where(
    table.c.team_id == bindparam("team_id"), table.c.name == bindparam("name"), NOT_DELETED
)
_HOLDER = select(table.c.id).where(
    table.c.team_id == bindparam("team_id"),
    table.c.name == bindparam("name"),
    table.c.id != bindparam("id"),
    NOT_DELETED,
)
_SEEN = bindparam(f"{_NEW}active_at", type_=table.c.active_at.type)
_REPLACE = (
    update(table)
    .where(
        table.c.id == bindparam("this_id"),
        table.c.team_id == bindparam("this_team_id"),
        table.c.version == bindparam("this_version"),
    )
    .values({c.name: bindparam(f"{_NEW}{c.name}") for c in table.c if c.name not in _KEPT})
    # What was seen in the meantime made no new version, and is not to be forgotten.
    .values(active_at=case((table.c.active_at > _SEEN, table.c.active_at), else_=_SEEN))
    .returning(table)
)
_TOUCH = (
    update(table)
    .where(table.c.id == bindparam("touched"), table.c.active_at < bindparam("seen"))
    .values(active_at=bindparam("seen"))
)
_HAS_TASKS = exists().where(task.c.sandbox_id == table.c.id)
_LABEL = insert(label)
_UNLABEL = delete(label).where(label.c.sandbox_id == bindparam("id"))


class SqlSandboxes:
    """The port's `Sandboxes`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, sandbox: SandboxRecord) -> None:
        self._claim_name(sandbox)
        self._connection.execute(_INSERT, to_row(sandbox))
        self._index(sandbox)

    def get(self, team_id: str, name_or_id: str) -> SandboxRecord | None:
        query, asked = _BY_NAME, {"team_id": team_id, "name": name_or_id}
        if is_id(name_or_id, SANDBOX_PREFIX):
            query, asked = _BY_ID, {"id": name_or_id}
            if team_id:
                query, asked = _BY_ID_IN_TEAM, {"id": name_or_id, "team_id": team_id}
        found = self._connection.execute(query, asked).mappings().first()
        return None if found is None else from_row(found)

    def list(self, team_id: str, wanted: SandboxFilter, page: Page) -> Sequence[SandboxRecord]:
        query = listing(team_id, wanted, page)
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def replace(self, sandbox: SandboxRecord) -> SandboxRecord:
        self._claim_name(sandbox)
        row = to_row(replace(sandbox, version=sandbox.version + 1))
        values = {f"{_NEW}{name}": value for name, value in row.items() if name not in _KEPT}
        this = {
            "this_id": sandbox.id,
            "this_team_id": sandbox.team_id,
            "this_version": sandbox.version,
        }
        changed = self._connection.execute(_REPLACE, values | this)
        stored = changed.mappings().first()
        if stored is None:
            raise self._changed(sandbox)
        self._connection.execute(_UNLABEL, {"id": sandbox.id})
        self._index(sandbox)
        return from_row(stored)

    def touch(self, active: Mapping[str, float]) -> None:
        if not active:
            return
        self._connection.execute(
            _TOUCH, [{"touched": name, "seen": seen} for name, seen in active.items()]
        )

    def purge(self, deleted_before: float, limit: int) -> int:
        forgotten = delete(table).where(table.c.id.in_(purgeable(deleted_before, limit)))
        return self._connection.execute(forgotten).rowcount

    def forget(self, sandbox_id: str) -> None:
        self._connection.execute(delete(table).where(table.c.id == sandbox_id))

    def _claim_name(self, sandbox: SandboxRecord) -> None:
        if sandbox.state is SandboxState.DELETED:
            return
        asked = {"team_id": sandbox.team_id, "name": sandbox.name, "id": sandbox.id}
        holder = self._connection.execute(_HOLDER, asked).scalar()
        if holder is not None:
            raise Conflict(
                f"the name {sandbox.name} belongs to sandbox {holder}",
                remediation="choose another name, or delete that sandbox first",
            )

    def _index(self, sandbox: SandboxRecord) -> None:
        if not sandbox.labels:
            return
        self._connection.execute(
            _LABEL,
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
    if wanted.owner:
        query = query.where(table.c.owner == wanted.owner, HAS_OWNER)
    if wanted.identity:
        query = query.where(table.c.identity == wanted.identity)
    if wanted.identity_prefix:
        query = query.where(begins_with(table.c.identity, wanted.identity_prefix))
    if wanted.provider:
        query = query.where(table.c.provider == wanted.provider)
    return query


def purgeable(deleted_before: float, limit: int) -> Select[Any]:
    return (
        select(table.c.id)
        .where(IS_DELETED, table.c.changed_at < deleted_before, ~_HAS_TASKS)
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
    row |= {name: addable(body["resources"][name]) for name in _ADDED_UP}
    return row | {"body": body}


def from_row(row: Mapping[Any, Any]) -> SandboxRecord:
    fields = row["body"] | {name: row[name] for name in _COLUMNS}
    fields["clock"] = fields["clock"] | {"active_at": row["active_at"]}
    return restored(fields, SandboxRecord)
