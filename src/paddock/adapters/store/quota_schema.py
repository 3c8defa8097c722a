"""The tables of quotas: limits of teams, and what is counted because it is nowhere added up."""

from sqlalchemy import BigInteger, Column, Double, Table

from paddock.adapters.store.columns import Line
from paddock.adapters.store.schema import metadata

quota = Table(
    "quota",
    metadata,
    # Without a foreign key: the empty team is the installation.
    Column("team_id", Line, primary_key=True),
    Column("name", Line, primary_key=True),
    Column("most", Double),
)

stored = Table(
    "stored",
    metadata,
    Column("team_id", Line, primary_key=True),
    # A sandbox, a task or whatever else events are about; empty for all of the team.
    Column("subject", Line, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)

build_file = Table(
    "build_file",
    metadata,
    Column("team_id", Line, primary_key=True),
    Column("digest", Line, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
)
