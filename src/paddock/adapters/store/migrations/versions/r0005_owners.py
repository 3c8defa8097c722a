"""Whose sandboxes and snapshots are, and an audit log that can forget a name."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    owned = sa.text("owner <> ''")
    for table in ("sandbox", "snapshot"):
        op.add_column(table, sa.Column("owner", _LINE, nullable=False, server_default=""))
        op.create_index(
            f"ix_{table}_owner",
            table,
            ["team_id", "owner", "id"],
            sqlite_where=owned,
            postgresql_where=owned,
        )
    # Entries without a seal are those from before: their detail itself is in the chain.
    for name in ("seal", "salt"):
        op.add_column("audit", sa.Column(name, _LINE, nullable=False, server_default=""))
    op.create_index("ix_audit_subject_seq", "audit", ["subject", "seq"])
