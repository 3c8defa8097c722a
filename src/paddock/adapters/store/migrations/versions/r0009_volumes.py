"""Volumes of teams."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    lines = ("id", "team_id", "name", "provider", "state")
    op.create_table(
        "volume",
        *(sa.Column(name, _LINE, nullable=False) for name in lines),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("size_mib", sa.Integer()),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_volume_team_id"),
        sa.PrimaryKeyConstraint("id", name="pk_volume"),
        sa.UniqueConstraint("team_id", "name", name="uq_volume_team_id_name"),
    )
    op.create_index("ix_volume_team_id_id", "volume", ["team_id", "id"])
    op.create_index("ix_volume_state", "volume", ["state"])
