"""The tables of tasks: what each is, what it has done, and what it is to be told."""

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    text,
)

from paddock.adapters.store.columns import Json, Line
from paddock.adapters.store.schema import metadata

NOT_OVER = text("state NOT IN ('completed', 'failed', 'cancelled')")

task = Table(
    "task",
    metadata,
    Column("id", Line, primary_key=True),
    Column("team_id", Line, ForeignKey("team.id"), nullable=False),
    Column("state", Line, nullable=False),
    Column("agent", Line, nullable=False),
    Column("sandbox_id", Line, nullable=False),
    Column("batch", Line, nullable=False),
    Column("attempt_of", Line, nullable=False),
    Column("provider", Line, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("owner", Line, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("until", Double, nullable=False),
    Column("version", Integer, nullable=False),
    Column("wish", Json, nullable=False),
    Column("body", Json, nullable=False),
    Index(None, "team_id", "id"),
    Index(None, "team_id", "state", "id"),
    Index(None, "sandbox_id"),
    Index(None, "ended_at"),
)
Index(
    "ix_task_claimable",
    task.c.until,
    task.c.id,
    sqlite_where=NOT_OVER,
    postgresql_where=NOT_OVER,
)

task_label = Table(
    "task_label",
    metadata,
    Column("task_id", Line, ForeignKey("task.id"), primary_key=True),
    Column("name", Line, primary_key=True),
    Column("value", Line, nullable=False),
    Column("team_id", Line, nullable=False),
    Index(None, "name", "value", "team_id", "task_id"),
)

task_after = Table(
    "task_after",
    metadata,
    Column("task_id", Line, ForeignKey("task.id"), primary_key=True),
    # Without a foreign key: what comes before may be forgotten, and then holds up nobody.
    Column("before_id", Line, primary_key=True),
    Index(None, "before_id"),
)

task_step = Table(
    "task_step",
    metadata,
    Column("task_id", Line, ForeignKey("task.id"), primary_key=True),
    Column("name", Line, primary_key=True),
    Column("output", Json, nullable=False),
    Column("at", Double, nullable=False),
)

task_message = Table(
    "task_message",
    metadata,
    Column("id", Line, primary_key=True),
    Column("team_id", Line, ForeignKey("team.id"), nullable=False),
    Column("task_id", Line, ForeignKey("task.id"), nullable=False),
    Column("state", Line, nullable=False),
    Column("queued_at", Double, nullable=False),
    Column("body", Json, nullable=False),
    Index(None, "task_id", "id"),
)

task_output = Table(
    "task_output",
    metadata,
    Column("task_id", Line, ForeignKey("task.id"), primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("stream", Line, primary_key=True),
    Column("offset", BigInteger, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
