"""What tokens, sign-in links and sessions were made with."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    for table in ("token", "sign_in_link", "session"):
        column = sa.Column("made_with", sa.Text(), nullable=False, server_default="[]")
        op.add_column(table, column)
