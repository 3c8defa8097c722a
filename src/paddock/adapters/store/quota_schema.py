"""Tables for quotas: limits of teams, and usage that no other table has."""

from sqlalchemy import BigInteger, Column, Double, Table

from paddock.adapters.store.columns import Line
from paddock.adapters.store.schema import metadata

quota = Table(
    "quota",
    metadata,
    # No foreign key: an empty team means the installation.
    Column("team_id", Line, primary_key=True),
    Column("name", Line, primary_key=True),
    Column("most", Double),
)

stored = Table(
    "stored",
    metadata,
    Column("team_id", Line, primary_key=True),
    # The sandbox, task or other subject of the events; empty for the team's total.
    Column("subject", Line, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)

team_image = Table(
    "team_image",
    metadata,
    Column("team_id", Line, primary_key=True),
    Column("provider", Line, primary_key=True),
    Column("reference", Line, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("used_at", Double, nullable=False),
)

build_file = Table(
    "build_file",
    metadata,
    Column("team_id", Line, primary_key=True),
    Column("digest", Line, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
)
