"""Which piece of work a sandbox is for."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_LIVE = sa.text("state <> 'deleted'")


def upgrade() -> None:
    op.add_column("sandbox", sa.Column("identity", _LINE, nullable=False, server_default=""))
    op.create_index(
        "ix_sandbox_identity",
        "sandbox",
        ["team_id", "identity", "id"],
        sqlite_where=_LIVE,
        postgresql_where=_LIVE,
    )
