"""Tasks, what each has done, and what it is to be told."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NOT_OVER = sa.text("state NOT IN ('completed', 'failed', 'cancelled')")


def upgrade() -> None:
    _tasks()
    op.create_table(
        "task_step",
        sa.Column("task_id", _LINE, nullable=False),
        sa.Column("name", _LINE, nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="fk_task_step_task_id"),
        sa.PrimaryKeyConstraint("task_id", "name", name="pk_task_step"),
    )
    op.create_table(
        "task_message",
        *(sa.Column(name, _LINE, nullable=False) for name in ("id", "team_id", "task_id", "state")),
        sa.Column("queued_at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_task_message_team_id"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="fk_task_message_task_id"),
        sa.PrimaryKeyConstraint("id", name="pk_task_message"),
    )
    op.create_index("ix_task_message_task_id_id", "task_message", ["task_id", "id"])
    op.create_table(
        "task_output",
        sa.Column("task_id", _LINE, nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("stream", _LINE, nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="fk_task_output_task_id"),
        sa.PrimaryKeyConstraint("task_id", "run", "stream", "offset", name="pk_task_output"),
    )


def _tasks() -> None:
    lines = ("id", "team_id", "state", "agent", "sandbox_id", "batch", "attempt_of", "provider")
    op.create_table(
        "task",
        *(sa.Column(name, _LINE, nullable=False) for name in lines),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("owner", _LINE, nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("wish", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_task_team_id"),
        sa.PrimaryKeyConstraint("id", name="pk_task"),
    )
    for columns in (("team_id", "id"), ("team_id", "state", "id"), ("sandbox_id",), ("ended_at",)):
        op.create_index(f"ix_task_{'_'.join(columns)}", "task", list(columns))
    op.create_index(
        "ix_task_claimable",
        "task",
        ["until", "id"],
        sqlite_where=_NOT_OVER,
        postgresql_where=_NOT_OVER,
    )
