"""People in the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, update

from paddock.adapters.store.paging import newest_first
from paddock.adapters.store.records import restored, split
from paddock.adapters.store.schema import HAS_EMAIL
from paddock.adapters.store.schema import person as table
from paddock.domain.errors import Conflict, NotFound
from paddock.domain.team import Person
from paddock.ports.store import Page

_COLUMNS = tuple(column.name for column in table.columns)


class SqlPeople:
    """The port's `People`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, person: Person) -> None:
        self._claim_email(person)
        self._connection.execute(insert(table), _to_row(person))

    def get(self, person_id: str, team_id: str = "") -> Person | None:
        query = select(table).where(table.c.id == person_id)
        if team_id:
            query = query.where(table.c.team_id == team_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _from_row(found)

    def with_email(self, team_id: str, email: str) -> Person | None:
        query = select(table).where(table.c.team_id == team_id, table.c.email == email, HAS_EMAIL)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _from_row(found)

    def named(self, person_ids: Sequence[str]) -> Mapping[str, str]:
        if not person_ids:
            return {}
        query = select(table.c.id, table.c.name).where(table.c.id.in_(person_ids))
        return {row.id: row.name for row in self._connection.execute(query)}

    def list(self, team_id: str, page: Page) -> Sequence[Person]:
        query = newest_first(select(table), table.c.id, page)
        if team_id:
            query = query.where(table.c.team_id == team_id)
        return [_from_row(row) for row in self._connection.execute(query).mappings()]

    def replace(self, person: Person) -> None:
        self._claim_email(person)
        row = _to_row(person)
        same = table.c.id == row.pop("id")
        if not self._connection.execute(update(table).where(same).values(row)).rowcount:
            raise NotFound(f"there is no person {person.id}")

    def _claim_email(self, person: Person) -> None:
        if not person.email or person.removed_at is not None:
            return
        holder = self.with_email(person.team_id, person.email)
        if holder is not None and holder.id != person.id:
            raise Conflict(
                f"{person.email} is {holder.name} ({holder.id}) already",
                remediation="change that person, or give another address",
            )


def _to_row(person: Person) -> dict[str, Any]:
    return split(person, _COLUMNS)[0]


def _from_row(row: Mapping[Any, Any]) -> Person:
    return restored(row, Person)
