"""Teams in the database."""

from collections.abc import Sequence

from sqlalchemy import Connection, Row, insert, select

from paddock.adapters.store.paging import newest_first
from paddock.adapters.store.schema import team as table
from paddock.domain.errors import Conflict
from paddock.domain.team import Team
from paddock.ports.store import Page


class SqlTeams:
    """The port's `Teams`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, team: Team) -> None:
        if self.named(team.name) is not None:
            raise Conflict(
                f"there is a team {team.name} already", remediation="choose another name"
            )
        self._connection.execute(
            insert(table),
            {
                "id": team.id,
                "name": team.name,
                "created_at": team.created_at,
                "operator": team.operator,
            },
        )

    def get(self, team_id: str) -> Team | None:
        found = self._connection.execute(select(table).where(table.c.id == team_id)).first()
        return None if found is None else _team(found)

    def named(self, name: str) -> Team | None:
        found = self._connection.execute(select(table).where(table.c.name == name)).first()
        return None if found is None else _team(found)

    def operating(self) -> Team | None:
        query = select(table).where(table.c.operator.is_(True)).order_by(table.c.id.desc()).limit(1)
        found = self._connection.execute(query).first()
        return None if found is None else _team(found)

    def list(self, page: Page) -> Sequence[Team]:
        query = newest_first(select(table), table.c.id, page)
        return [_team(row) for row in self._connection.execute(query)]


def _team(row: Row[tuple[object, ...]]) -> Team:
    return Team(**row._mapping)
