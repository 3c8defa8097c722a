"""How far those who tell of events have come."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "event_source",
        sa.Column("sandbox_id", _LINE, nullable=False),
        sa.Column("source", _LINE, nullable=False),
        sa.Column("last_seq", _SERIAL, nullable=False),
        sa.Column("missing", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["sandbox_id"],
            ["sandbox.id"],
            name="fk_event_source_sandbox_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sandbox_id", "source", name="pk_event_source"),
    )
