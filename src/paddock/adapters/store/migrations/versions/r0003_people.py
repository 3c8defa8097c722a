"""People, how they sign in, and which tokens are theirs."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    _people()
    _links()
    _sessions()
    op.add_column("token", sa.Column("person_id", _LINE, nullable=False, server_default=""))
    op.create_index("ix_token_person_id", "token", ["person_id"])


def _lines(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, _LINE, nullable=False) for name in names]


def _moment(name: str, *, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=nullable)


def _people() -> None:
    op.create_table(
        "person",
        *_lines("id", "team_id", "name", "email", "role"),
        _moment("created_at"),
        _moment("removed_at", nullable=True),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_person_team_id"),
        sa.PrimaryKeyConstraint("id", name="pk_person"),
    )
    op.create_index("ix_person_team_id_id", "person", ["team_id", "id"])
    there = sa.text("email <> '' AND removed_at IS NULL")
    op.create_index(
        "uq_person_team_id_email",
        "person",
        ["team_id", "email"],
        unique=True,
        sqlite_where=there,
        postgresql_where=there,
    )


def _links() -> None:
    op.create_table(
        "sign_in_link",
        *_lines("id", "team_id", "person_id", "digest"),
        _moment("created_at"),
        _moment("expires_at"),
        _moment("used_at", nullable=True),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_sign_in_link_team_id"),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name="fk_sign_in_link_person_id"),
        sa.PrimaryKeyConstraint("id", name="pk_sign_in_link"),
    )
    op.create_index("ix_sign_in_link_person_id", "sign_in_link", ["person_id"])
    op.create_index("ix_sign_in_link_expires_at", "sign_in_link", ["expires_at"])


def _sessions() -> None:
    op.create_table(
        "session",
        *_lines("id", "team_id", "holder", "token_id", "digest"),
        _moment("created_at"),
        _moment("expires_at"),
        _moment("used_at"),
        _moment("ended_at", nullable=True),
        *_lines("agent"),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_session_team_id"),
        sa.PrimaryKeyConstraint("id", name="pk_session"),
    )
    op.create_index("ix_session_team_id_id", "session", ["team_id", "id"])
    op.create_index("ix_session_holder_id", "session", ["holder", "id"])
    op.create_index("ix_session_expires_at", "session", ["expires_at"])
