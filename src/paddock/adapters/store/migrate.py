"""Bringing a database to the tables of this version, or saying why that cannot be."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from paddock.adapters.store import schema
from paddock.domain.errors import InvalidRequest

if TYPE_CHECKING:
    from alembic.config import Config

_MIGRATIONS = Path(__file__).parent / "migrations"
_APPLIED = text(f"SELECT version_num FROM {schema.VERSION_TABLE}")  # noqa: S608 - a constant
# Alembic's `op` and `context` belong to the process, not to a connection.
_alone = threading.Lock()


def revision(connection: Connection) -> str | None:
    """What was applied last; None for a database that Paddock has not seen."""
    if not inspect(connection).has_table(schema.VERSION_TABLE):
        return None
    found: str | None = connection.execute(_APPLIED).scalar()
    return found


def migrate(connection: Connection, place: str, *, own_database: bool) -> None:
    """Within the caller's transaction, which nobody else can be in at the same time.

    `own_database` says that nothing but Paddock's tables belongs there. InvalidRequest when it is
    somebody else's, or of a version that is not known here.
    """
    found = revision(connection)
    if found == schema.REVISION:
        return
    if found is None:
        _check_free(connection, place, own_database)
    # It takes a tenth of a second to import, and is needed once.
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.util.exc import CommandError

    with _alone:
        config = alembic_config(connection)
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if found is not None and found not in known:
            raise _unknown(place, found)
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise _unknown(place, found or "none") from error


def alembic_config(connection: Connection) -> "Config":
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _check_free(connection: Connection, place: str, own_database: bool) -> None:
    there = set(inspect(connection).get_table_names())
    others = there if own_database else there & set(schema.metadata.tables)
    if others:
        raise InvalidRequest(
            f"{place} is a database of something else: it has the tables "
            f"{', '.join(sorted(others)[:5])}, but no {schema.VERSION_TABLE}",
            remediation="name another one for Paddock",
        )


def _unknown(place: str, found: str) -> InvalidRequest:
    return InvalidRequest(
        f"{place} is at revision {found}, which this version does not know; it expects "
        f"{schema.REVISION}",
        remediation="a newer Paddock was here: use that one, or restore a backup from before",
    )
