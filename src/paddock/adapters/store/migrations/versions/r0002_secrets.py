"""Sealed values of teams."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "secret",
        *(sa.Column(name, _LINE, nullable=False) for name in ("team_id", "scope", "name")),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("sensitive", sa.Boolean(), nullable=False),
        *(sa.Column(name, _LINE, nullable=False) for name in ("policy", "key_id", "sealed")),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_secret_team_id"),
        sa.PrimaryKeyConstraint("team_id", "scope", "name", name="pk_secret"),
    )
    op.create_index("ix_secret_key_id", "secret", ["key_id"])
