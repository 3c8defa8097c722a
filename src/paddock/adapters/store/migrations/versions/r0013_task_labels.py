"""What tasks are found by: their labels, and the tasks that they come after."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    label = op.create_table(
        "task_label",
        *(sa.Column(name, _LINE, nullable=False) for name in ("task_id", "name", "value")),
        sa.Column("team_id", _LINE, nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="fk_task_label_task_id"),
        sa.PrimaryKeyConstraint("task_id", "name", name="pk_task_label"),
    )
    columns = ("name", "value", "team_id", "task_id")
    op.create_index(f"ix_task_label_{'_'.join(columns)}", "task_label", list(columns))
    after = op.create_table(
        "task_after",
        *(sa.Column(name, _LINE, nullable=False) for name in ("task_id", "before_id")),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="fk_task_after_task_id"),
        sa.PrimaryKeyConstraint("task_id", "before_id", name="pk_task_after"),
    )
    op.create_index("ix_task_after_before_id", "task_after", ["before_id"])
    _fill(label, after)


def _fill(label: sa.Table, after: sa.Table) -> None:
    """Of the tasks that there are; wishes may be large, so one at a time."""
    connection = op.get_bind()
    task = sa.table("task", *(sa.column(name) for name in ("id", "team_id", "wish")))
    for task_id, team_id in connection.execute(sa.select(task.c.id, task.c.team_id)).all():
        kept = connection.execute(sa.select(task.c.wish).where(task.c.id == task_id))
        wish = json.loads(kept.scalar_one())
        for name, value in wish.get("labels", {}).items():
            row = {"task_id": task_id, "name": name, "value": value, "team_id": team_id}
            connection.execute(sa.insert(label), row)
        for before in dict.fromkeys(wish.get("after", ())):
            connection.execute(sa.insert(after), {"task_id": task_id, "before_id": before})
