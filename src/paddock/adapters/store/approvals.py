"""Questions to people in the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from paddock.adapters.store.paging import newest_first
from paddock.adapters.store.records import restored, split
from paddock.adapters.store.schema import IS_PENDING
from paddock.adapters.store.schema import approval as table
from paddock.domain.approval import Approval, Kind, State
from paddock.domain.errors import NotFound
from paddock.ports.approvals import ApprovalFilter
from paddock.ports.store import Page

_COLUMNS = tuple(column.name for column in table.columns if column.name != "body")


class SqlApprovals:
    """The port's `Approvals`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, approval: Approval) -> None:
        self._connection.execute(insert(table), to_row(approval))

    def get(self, team_id: str, approval_id: str) -> Approval | None:
        query = select(table).where(table.c.id == approval_id)
        if team_id:
            query = query.where(table.c.team_id == team_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else from_row(found)

    def list(self, team_id: str, wanted: ApprovalFilter, page: Page) -> Sequence[Approval]:
        query = newest_first(select(table), table.c.id, page)
        if wanted.sandbox_id:
            query = query.where(table.c.sandbox_id == wanted.sandbox_id)
        if wanted.kind is not None:
            query = query.where(table.c.kind == wanted.kind)
        if wanted.states:
            query = query.where(table.c.state.in_(sorted(wanted.states)))
        if team_id:
            # A sandbox has few and a team many: concatenated, so that with a sandbox its index is
            # the one that is taken.
            owner = table.c.team_id.concat("") if wanted.sandbox_id else table.c.team_id
            query = query.where(owner == team_id)
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def latest(self, sandbox_id: str, kind: Kind, what: str) -> Approval | None:
        query = select(table).where(
            table.c.sandbox_id == sandbox_id, table.c.kind == kind, table.c.what == what
        )
        query = newest_first(query, table.c.id, Page(1))
        found = self._connection.execute(query).mappings().first()
        return None if found is None else from_row(found)

    def of_task(
        self, sandbox_id: str, task_id: str, kind: Kind = Kind.QUESTION
    ) -> Sequence[Approval]:
        # Between the id with a blank behind it and the next character: an index has them together.
        query = select(table).where(
            table.c.sandbox_id == sandbox_id,
            table.c.kind == kind,
            table.c.what >= f"{task_id} ",
            table.c.what < f"{task_id}!",
        )
        query = query.order_by(table.c.id.desc())
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def pending(self, limit: int) -> Sequence[Approval]:
        query = select(table).where(IS_PENDING).order_by(table.c.expires_at).limit(limit)
        return [from_row(row) for row in self._connection.execute(query).mappings()]

    def count_pending(self, sandbox_id: str) -> int:
        query = select(func.count()).where(
            table.c.sandbox_id == sandbox_id, table.c.state == State.PENDING
        )
        return self._connection.execute(query).scalar_one()

    def count_since(self, sandbox_id: str, since: float) -> int:
        query = select(func.count()).where(
            table.c.sandbox_id == sandbox_id, table.c.created_at > since
        )
        return self._connection.execute(query).scalar_one()

    def replace(self, approval: Approval) -> None:
        row = to_row(approval)
        same = (table.c.id == row.pop("id"), table.c.team_id == row.pop("team_id"))
        if not self._connection.execute(update(table).where(*same).values(row)).rowcount:
            raise NotFound(f"there is no approval {approval.id}")

    def prune(self, before: float, limit: int) -> int:
        old = (
            select(table.c.id)
            .where(table.c.created_at < before, table.c.state != State.PENDING)
            .limit(limit)
        )
        return self._connection.execute(delete(table).where(table.c.id.in_(old))).rowcount

    def forget(self, sandbox_id: str) -> None:
        self._connection.execute(delete(table).where(table.c.sandbox_id == sandbox_id))


def to_row(approval: Approval) -> dict[str, Any]:
    row, body = split(approval, _COLUMNS)
    return row | {"body": body}


def from_row(row: Mapping[Any, Any]) -> Approval:
    return restored(row["body"] | {name: row[name] for name in _COLUMNS}, Approval)
