"""Ends of commands that were told, in the database."""

from sqlalchemy import Connection, insert, select

from paddock.adapters.store.schema import command_end as table
from paddock.adapters.store.schema import sandbox


class SqlEnds:
    """The port's `Ends`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def note_told(self, team_id: str, sandbox_id: str, command_id: str) -> bool:
        same = (table.c.team_id == team_id, table.c.command_id == command_id)
        if self._connection.execute(select(table.c.command_id).where(*same)).first() is not None:
            return False
        home = select(sandbox.c.id).where(sandbox.c.id == sandbox_id)
        if self._connection.execute(home).first() is None:
            return False
        row = {"team_id": team_id, "command_id": command_id, "sandbox_id": sandbox_id}
        self._connection.execute(insert(table), row)
        return True
