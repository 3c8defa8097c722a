"""Which commands' ends were told, for as long as their sandboxes are there."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_PAGE = 1000
_TOLD = sa.text(
    "SELECT seq, team_id, subject, data FROM event WHERE seq > :after AND kind = 'command.ended'"
    " AND subject IN (SELECT id FROM sandbox) ORDER BY seq LIMIT :page"
)
_ADD = sa.text(
    "INSERT INTO command_end (team_id, command_id, sandbox_id) VALUES (:team, :command, :sandbox)"
    " ON CONFLICT DO NOTHING"
)


def upgrade() -> None:
    op.create_table(
        "command_end",
        *(sa.Column(name, _LINE, nullable=False) for name in ("team_id", "command_id")),
        sa.Column("sandbox_id", _LINE, nullable=False),
        sa.ForeignKeyConstraint(
            ["sandbox_id"],
            ["sandbox.id"],
            name="fk_command_end_sandbox_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("team_id", "command_id", name="pk_command_end"),
    )
    op.create_index("ix_command_end_sandbox_id", "command_end", ["sandbox_id"])
    _fill()


def _fill() -> None:
    """By the log, as far as it goes back."""
    connection, after = op.get_bind(), 0
    while page := connection.execute(_TOLD, {"after": after, "page": _PAGE}).all():
        for _, team_id, sandbox_id, data in page:
            command = json.loads(data).get("command")
            if isinstance(command, str):
                row = {"team": team_id, "command": command, "sandbox": sandbox_id}
                connection.execute(_ADD, row)
        after = page[-1].seq
