"""Sign-in links and sessions in the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update

from paddock.adapters.store.access_schema import session as table
from paddock.adapters.store.access_schema import sign_in_link as link_table
from paddock.adapters.store.paging import newest_first
from paddock.adapters.store.records import restored, split
from paddock.domain.session import Session, SignInLink
from paddock.ports.store import Page

_COLUMNS = tuple(column.name for column in table.columns)
_LINK_COLUMNS = tuple(column.name for column in link_table.columns)


class SqlLinks:
    """The port's `Links`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, link: SignInLink) -> None:
        self._connection.execute(insert(link_table), split(link, _LINK_COLUMNS)[0])

    def get(self, link_id: str) -> SignInLink | None:
        query = select(link_table).where(link_table.c.id == link_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _link(found)

    def use(self, link_id: str, now: float) -> None:
        same = link_table.c.id == link_id
        self._connection.execute(update(link_table).where(same).values(used_at=now))

    def remove_of(self, person_id: str) -> None:
        self._connection.execute(delete(link_table).where(link_table.c.person_id == person_id))

    def prune(self, before: float, limit: int) -> int:
        return _prune(self._connection, link_table, before, limit)


class SqlSessions:
    """The port's `Sessions`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, session: Session) -> None:
        self._connection.execute(insert(table), split(session, _COLUMNS)[0])

    def get(self, session_id: str, team_id: str = "") -> Session | None:
        query = select(table).where(table.c.id == session_id)
        if team_id:
            query = query.where(table.c.team_id == team_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _from_row(found)

    def list(self, team_id: str, page: Page, *, holder: str = "") -> Sequence[Session]:
        query = newest_first(select(table), table.c.id, page)
        query = query.where(table.c.team_id == team_id)
        if holder:
            query = query.where(table.c.holder == holder)
        return [_from_row(row) for row in self._connection.execute(query).mappings()]

    def touch(self, session_id: str, now: float) -> None:
        older = (table.c.id == session_id, table.c.used_at < now)
        self._connection.execute(update(table).where(*older).values(used_at=now))

    def end(self, session_id: str, now: float) -> None:
        still = (table.c.id == session_id, table.c.ended_at.is_(None))
        self._connection.execute(update(table).where(*still).values(ended_at=now))

    def end_of(self, holder: str, now: float) -> Sequence[str]:
        ended = self._connection.execute(
            update(table)
            .where(table.c.holder == holder, table.c.ended_at.is_(None))
            .values(ended_at=now)
            .returning(table.c.id)
        )
        return [row.id for row in ended]

    def prune(self, before: float, limit: int) -> int:
        return _prune(self._connection, table, before, limit)


def _prune(connection: Connection, table: Table, before: float, limit: int) -> int:
    oldest = (
        select(table.c.id)
        .where(table.c.expires_at < before)
        .order_by(table.c.expires_at)
        .limit(limit)
    )
    return connection.execute(delete(table).where(table.c.id.in_(oldest))).rowcount


def _from_row(row: Mapping[Any, Any]) -> Session:
    return restored(row, Session)


def _link(row: Mapping[Any, Any]) -> SignInLink:
    return restored(row, SignInLink)
