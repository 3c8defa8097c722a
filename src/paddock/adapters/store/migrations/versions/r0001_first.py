"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _people()
    _sandboxes()
    _labels()
    _snapshots()
    _logs()
    _counters()
    _values()


def _line(name: str) -> sa.Column[str]:
    return sa.Column(name, _LINE, nullable=False)


def _json(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _moment(name: str, *, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=nullable)


def _index(name: str, table: str, *columns: str) -> None:
    op.create_index(name, table, list(columns))


def _partial(
    name: str, table: str, columns: list[str], where: str, *, unique: bool = False
) -> None:
    condition = sa.text(where)
    op.create_index(
        name,
        table,
        columns,
        unique=unique,
        sqlite_where=condition,
        postgresql_where=condition,
    )


def _people() -> None:
    op.create_table(
        "team",
        _line("id"),
        _line("name"),
        _moment("created_at"),
        sa.Column("operator", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_team"),
        sa.UniqueConstraint("name", name="uq_team_name"),
    )
    op.create_table(
        "token",
        _line("id"),
        _line("team_id"),
        _line("name"),
        _line("role"),
        _line("digest"),
        _json("scopes"),
        _moment("created_at"),
        _moment("expires_at", nullable=True),
        _moment("revoked_at", nullable=True),
        _moment("used_at", nullable=True),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_token_team_id"),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
    )
    _index("ix_token_team_id_id", "token", "team_id", "id")


def _sandboxes() -> None:
    op.create_table(
        "sandbox",
        _line("id"),
        _line("team_id"),
        _line("name"),
        _line("state"),
        _line("provider"),
        _line("ref"),
        _moment("created_at"),
        _moment("changed_at"),
        _moment("active_at"),
        sa.Column("version", sa.Integer(), nullable=False),
        _json("labels"),
        _json("body"),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_sandbox_team_id"),
        sa.PrimaryKeyConstraint("id", name="pk_sandbox"),
    )
    live, gone = "state <> 'deleted'", "NOT state <> 'deleted'"
    _partial("uq_sandbox_team_id_name", "sandbox", ["team_id", "name"], live, unique=True)
    _partial("ix_sandbox_live", "sandbox", ["team_id", "id"], live)
    _partial("ix_sandbox_all_live", "sandbox", ["id"], live)
    _partial("ix_sandbox_purge", "sandbox", ["changed_at"], gone)
    _index("ix_sandbox_team_id_state_id", "sandbox", "team_id", "state", "id")
    _index("ix_sandbox_state_id", "sandbox", "state", "id")


def _labels() -> None:
    op.create_table(
        "sandbox_label",
        _line("sandbox_id"),
        _line("name"),
        _line("value"),
        _line("team_id"),
        sa.ForeignKeyConstraint(
            ["sandbox_id"],
            ["sandbox.id"],
            name="fk_sandbox_label_sandbox_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sandbox_id", "name", name="pk_sandbox_label"),
    )
    columns = ("name", "value", "team_id", "sandbox_id")
    _index("ix_sandbox_label_name_value_team_id_sandbox_id", "sandbox_label", *columns)


def _snapshots() -> None:
    op.create_table(
        "snapshot",
        _line("id"),
        _line("team_id"),
        _line("name"),
        _line("provider"),
        _line("ref"),
        _line("sandbox_id"),
        sa.Column("automatic", sa.Boolean(), nullable=False),
        _moment("created_at"),
        _moment("expires_at", nullable=True),
        _json("body"),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"], name="fk_snapshot_team_id"),
        sa.PrimaryKeyConstraint("id", name="pk_snapshot"),
        sa.UniqueConstraint("team_id", "name", name="uq_snapshot_team_id_name"),
    )
    _index("ix_snapshot_team_id_id", "snapshot", "team_id", "id")
    _index("ix_snapshot_sandbox_id_id", "snapshot", "sandbox_id", "id")
    _partial("ix_snapshot_expires_at", "snapshot", ["expires_at"], "expires_at IS NOT NULL")


def _logs() -> None:
    op.create_table(
        "event",
        sa.Column("seq", _SERIAL, autoincrement=False, nullable=False),
        _line("team_id"),
        _line("kind"),
        _line("subject"),
        _moment("at"),
        _line("actor"),
        _json("data"),
        sa.PrimaryKeyConstraint("seq", name="pk_event"),
    )
    _index("ix_event_team_id_seq", "event", "team_id", "seq")
    _index("ix_event_subject_seq", "event", "subject", "seq")
    op.create_table(
        "audit",
        sa.Column("seq", _SERIAL, autoincrement=False, nullable=False),
        _line("team_id"),
        _line("actor"),
        _line("action"),
        _line("subject"),
        _moment("at"),
        _json("detail"),
        _line("previous"),
        _line("hash"),
        sa.PrimaryKeyConstraint("seq", name="pk_audit"),
    )
    _index("ix_audit_team_id_seq", "audit", "team_id", "seq")


def _counters() -> None:
    counter = op.create_table(
        "counter",
        _line("name"),
        sa.Column("last", _SERIAL, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counter"),
    )
    op.bulk_insert(counter, [{"name": "event", "last": 0}])


def _values() -> None:
    op.create_table(
        "idempotency_key",
        _line("team_id"),
        _line("key"),
        _line("fingerprint"),
        _line("object_id"),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("team_id", "key", name="pk_idempotency_key"),
    )
    _index("ix_idempotency_key_team_id_object_id", "idempotency_key", "team_id", "object_id")
    _index("ix_idempotency_key_created_at", "idempotency_key", "created_at")
    op.create_table(
        "value",
        _line("name"),
        _json("value"),
        sa.PrimaryKeyConstraint("name", name="pk_value"),
    )
