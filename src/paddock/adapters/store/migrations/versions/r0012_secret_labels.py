"""What a team notes about its secrets."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("secret", sa.Column("labels", sa.Text(), nullable=False, server_default="{}"))
