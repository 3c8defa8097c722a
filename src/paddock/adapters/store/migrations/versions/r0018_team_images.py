"""Add the images that members have named: they count against quotas."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    keys = ("team_id", "provider", "reference")
    op.create_table(
        "team_image",
        *(sa.Column(each, _LINE, nullable=False) for each in keys),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(*keys, name="pk_team_image"),
    )
