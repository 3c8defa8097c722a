"""Ways into sandboxes by SSH."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    lines = ("id", "team_id", "sandbox_id", "actor", "proof", "digest", "user")
    op.create_table(
        "ssh_access",
        *(sa.Column(name, _LINE, nullable=False) for name in lines),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("revoked_at", sa.Double()),
        sa.Column("used_at", sa.Double()),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_ssh_access_team_id"),
        sa.PrimaryKeyConstraint("id", name="pk_ssh_access"),
    )
    op.create_index(
        "ix_ssh_access_team_id_sandbox_id_id", "ssh_access", ["team_id", "sandbox_id", "id"]
    )
    op.create_index("ix_ssh_access_digest", "ssh_access", ["digest"])
    op.create_index("ix_ssh_access_expires_at", "ssh_access", ["expires_at"])
