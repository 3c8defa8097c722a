"""What a request with a key was answered."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    for name in ("sealed", "key_id"):
        op.add_column("idempotency_key", sa.Column(name, _LINE, nullable=False, server_default=""))
    op.create_index("ix_idempotency_key_key_id", "idempotency_key", ["key_id"])
