"""Images that members have named, in the database."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select

from paddock.adapters.store.quota_schema import team_image as table
from paddock.ports.team_images import TeamImage


class SqlTeamImages:
    """The port's `TeamImages`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, team_id: str, provider: str, reference: str) -> TeamImage | None:
        query = select(table).where(_same(team_id, provider, reference))
        found = self._connection.execute(query).first()
        return None if found is None else _image(found)

    def put(self, image: TeamImage) -> None:
        self.remove(image)
        row = {
            "team_id": image.team_id,
            "provider": image.provider,
            "reference": image.reference,
            "bytes": image.size_bytes,
            "used_at": image.used_at,
        }
        self._connection.execute(insert(table), row)

    def remove(self, image: TeamImage) -> None:
        same = _same(image.team_id, image.provider, image.reference)
        self._connection.execute(delete(table).where(same))

    def all(self) -> Sequence[TeamImage]:
        return [_image(row) for row in self._connection.execute(select(table))]


def _same(team_id: str, provider: str, reference: str) -> ColumnElement[bool]:
    return and_(
        table.c.team_id == team_id,
        table.c.provider == provider,
        table.c.reference == reference,
    )


def _image(row: Row[tuple[object, ...]]) -> TeamImage:
    return TeamImage(row.team_id, row.provider, row.reference, int(row.bytes), row.used_at)
