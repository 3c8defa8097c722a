"""Add quotas of teams, and the columns and tables that usage is computed from."""

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_PAGE = 1000
_LARGEST = 1 << 50
# Plus 128 bytes for the overhead of a row.
_STORED = """
INSERT INTO stored (team_id, subject, bytes)
SELECT team_id, subject, sum(bytes) FROM (
  SELECT team_id, subject, length(data) + 128 AS bytes FROM event WHERE subject <> ''
  UNION ALL SELECT t.team_id, o.task_id, length(o.data) + 128
  FROM task_output o JOIN task t ON t.id = o.task_id
) AS each GROUP BY team_id, subject
"""
_OF_TEAMS = """
INSERT INTO stored (team_id, subject, bytes)
SELECT team_id, '', sum(bytes) FROM stored GROUP BY team_id
"""


def upgrade() -> None:
    _table("quota", "name", sa.Column("most", sa.Double()))
    _table("stored", "subject", _bytes())
    _table("build_file", "digest", _bytes(), sa.Column("at", sa.Double(), nullable=False))
    for name, kind in (
        ("cpus", sa.Double()),
        ("memory_mib", sa.BigInteger()),
        ("disk_mib", sa.BigInteger()),
    ):
        op.add_column("sandbox", sa.Column(name, kind, nullable=False, server_default="0"))
    op.add_column("snapshot", sa.Column("size_bytes", sa.BigInteger()))
    _fill("sandbox", ("cpus", "memory_mib", "disk_mib"), lambda body: body.get("resources", {}))
    _fill("snapshot", ("size_bytes",), lambda body: body)
    op.execute(_STORED)
    op.execute(_OF_TEAMS)


def _bytes() -> sa.Column[Any]:
    return sa.Column("bytes", sa.BigInteger(), nullable=False)


def _table(name: str, key: str, *columns: sa.Column[Any]) -> None:
    op.create_table(
        name,
        sa.Column("team_id", _LINE, nullable=False),
        sa.Column(key, _LINE, nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("team_id", key, name=f"pk_{name}"),
    )


def _fill(name: str, columns: tuple[str, ...], of: Callable[[Any], Any]) -> None:
    """Copy values from the JSON bodies of the rows into columns, page by page."""
    connection, after = op.get_bind(), ""
    table = sa.table(name, *(sa.column(each) for each in ("id", "body", *columns)))
    query = sa.select(table.c.id, table.c.body).order_by(table.c.id).limit(_PAGE)
    while page := connection.execute(query.where(table.c.id > after)).all():
        for row_id, body in page:
            found = of(json.loads(body))
            known = {each: found.get(each) for each in columns}
            values = {each: min(n, _LARGEST) for each, n in known.items() if n is not None}
            if values:
                connection.execute(sa.update(table).where(table.c.id == row_id).values(values))
        after = page[-1].id
