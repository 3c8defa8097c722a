"""Questions to people, and what they answered."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    lines = ("id", "team_id", "sandbox_id", "kind", "what", "state")
    op.create_table(
        "approval",
        *(sa.Column(name, _LINE, nullable=False) for name in lines),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_approval_team_id"),
        sa.PrimaryKeyConstraint("id", name="pk_approval"),
    )
    for columns in (
        ("team_id", "id"),
        ("team_id", "state", "id"),
        ("sandbox_id", "kind", "what", "id"),
        ("sandbox_id", "created_at"),
        ("created_at",),
    ):
        op.create_index(f"ix_approval_{'_'.join(columns)}", "approval", list(columns))
    op.create_index(
        "ix_approval_pending",
        "approval",
        ["expires_at"],
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
