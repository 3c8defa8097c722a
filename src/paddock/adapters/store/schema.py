"""The tables. A change here needs a revision in `migrations/versions`; a test compares the two."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
    text,
)

from paddock.adapters.store.columns import Json, Line, Serial

REVISION = "0018"
"""What a database must have had applied last to be used by this code."""
VERSION_TABLE = "paddock_revision"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# Written out in queries too: a database uses a partial index only where it can read the condition.
NOT_DELETED = text("state <> 'deleted'")
# Not as an equality, for which SQLite would rather take the index of all states, and sort.
IS_DELETED = text("NOT state <> 'deleted'")
EXPIRES = text("expires_at IS NOT NULL")
HAS_OWNER = text("owner <> ''")
IS_PENDING = text("state = 'pending'")
HAS_EMAIL = text("email <> '' AND removed_at IS NULL")

team = Table(
    "team",
    metadata,
    Column("id", Line, primary_key=True),
    Column("name", Line, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("operator", Boolean, nullable=False),
    UniqueConstraint("name"),
)

person = Table(
    "person",
    metadata,
    Column("id", Line, primary_key=True),
    Column("team_id", Line, ForeignKey("team.id"), nullable=False),
    Column("name", Line, nullable=False),
    Column("email", Line, nullable=False),
    Column("role", Line, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("removed_at", Double),
    Index(None, "team_id", "id"),
)
Index(
    "uq_person_team_id_email",
    person.c.team_id,
    person.c.email,
    unique=True,
    sqlite_where=HAS_EMAIL,
    postgresql_where=HAS_EMAIL,
)

sandbox = Table(
    "sandbox",
    metadata,
    Column("id", Line, primary_key=True),
    Column("team_id", Line, ForeignKey("team.id"), nullable=False),
    Column("name", Line, nullable=False),
    Column("state", Line, nullable=False),
    Column("provider", Line, nullable=False),
    Column("ref", Line, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Column("active_at", Double, nullable=False),
    Column("version", Integer, nullable=False),
    Column("labels", Json, nullable=False),
    Column("owner", Line, nullable=False, server_default=""),
    Column("body", Json, nullable=False),
    Column("identity", Line, nullable=False, server_default=""),
    # Copies of values in the body, so that SQL can sum them.
    Column("cpus", Double, nullable=False, server_default="0"),
    Column("memory_mib", BigInteger, nullable=False, server_default="0"),
    Column("disk_mib", BigInteger, nullable=False, server_default="0"),
    Index(None, "team_id", "state", "id"),
    Index(None, "state", "id"),
)
Index(
    "ix_sandbox_identity",
    sandbox.c.team_id,
    sandbox.c.identity,
    sandbox.c.id,
    sqlite_where=NOT_DELETED,
    postgresql_where=NOT_DELETED,
)
Index(
    "uq_sandbox_team_id_name",
    sandbox.c.team_id,
    sandbox.c.name,
    unique=True,
    sqlite_where=NOT_DELETED,
    postgresql_where=NOT_DELETED,
)
Index(
    "ix_sandbox_live",
    sandbox.c.team_id,
    sandbox.c.id,
    sqlite_where=NOT_DELETED,
    postgresql_where=NOT_DELETED,
)
Index(
    "ix_sandbox_all_live",
    sandbox.c.id,
    sqlite_where=NOT_DELETED,
    postgresql_where=NOT_DELETED,
)
Index(
    "ix_sandbox_purge",
    sandbox.c.changed_at,
    sqlite_where=IS_DELETED,
    postgresql_where=IS_DELETED,
)

Index(
    "ix_sandbox_owner",
    sandbox.c.team_id,
    sandbox.c.owner,
    sandbox.c.id,
    sqlite_where=HAS_OWNER,
    postgresql_where=HAS_OWNER,
)

sandbox_label = Table(
    "sandbox_label",
    metadata,
    Column(
        "sandbox_id",
        Line,
        ForeignKey("sandbox.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("name", Line, primary_key=True),
    Column("value", Line, nullable=False),
    Column("team_id", Line, nullable=False),
    Index(None, "name", "value", "team_id", "sandbox_id"),
)

snapshot = Table(
    "snapshot",
    metadata,
    Column("id", Line, primary_key=True),
    Column("team_id", Line, ForeignKey("team.id"), nullable=False),
    Column("name", Line, nullable=False),
    Column("provider", Line, nullable=False),
    Column("ref", Line, nullable=False),
    Column("sandbox_id", Line, nullable=False),
    Column("automatic", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("owner", Line, nullable=False, server_default=""),
    Column("body", Json, nullable=False),
    # A copy, too.
    Column("size_bytes", BigInteger),
    UniqueConstraint("team_id", "name"),
    Index(None, "team_id", "id"),
    Index(None, "sandbox_id", "id"),
)
Index(
    "ix_snapshot_expires_at",
    snapshot.c.expires_at,
    sqlite_where=EXPIRES,
    postgresql_where=EXPIRES,
)

Index(
    "ix_snapshot_owner",
    snapshot.c.team_id,
    snapshot.c.owner,
    snapshot.c.id,
    sqlite_where=HAS_OWNER,
    postgresql_where=HAS_OWNER,
)

event = Table(
    "event",
    metadata,
    Column("seq", Serial, primary_key=True, autoincrement=False),
    Column("team_id", Line, nullable=False),
    Column("kind", Line, nullable=False),
    Column("subject", Line, nullable=False),
    Column("at", Double, nullable=False),
    Column("actor", Line, nullable=False),
    Column("data", Json, nullable=False),
    Index(None, "team_id", "seq"),
    Index(None, "subject", "seq"),
)

event_source = Table(
    "event_source",
    metadata,
    Column(
        "sandbox_id",
        Line,
        ForeignKey("sandbox.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("source", Line, primary_key=True),
    Column("last_seq", Serial, nullable=False),
    Column("missing", Json, nullable=False),
    Column("changed_at", Double, nullable=False),
)

command_end = Table(
    "command_end",
    metadata,
    Column("team_id", Line, primary_key=True),
    Column("command_id", Line, primary_key=True),
    Column("sandbox_id", Line, ForeignKey("sandbox.id", ondelete="CASCADE"), nullable=False),
    Index(None, "sandbox_id"),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", Serial, primary_key=True, autoincrement=False),
    Column("team_id", Line, nullable=False),
    Column("actor", Line, nullable=False),
    Column("action", Line, nullable=False),
    Column("subject", Line, nullable=False),
    Column("at", Double, nullable=False),
    Column("detail", Json, nullable=False),
    Column("previous", Line, nullable=False),
    Column("hash", Line, nullable=False),
    Column("seal", Line, nullable=False, server_default=""),
    Column("salt", Line, nullable=False, server_default=""),
    Column("team_seq", Serial, nullable=False, server_default="0"),
    Column("team_previous", Line, nullable=False, server_default=""),
    Column("team_hash", Line, nullable=False, server_default=""),
    Index(None, "team_id", "team_seq", unique=True),
    Index(None, "subject", "seq"),
)

idempotency_key = Table(
    "idempotency_key",
    metadata,
    Column("team_id", Line, primary_key=True),
    Column("key", Line, primary_key=True),
    Column("fingerprint", Line, nullable=False),
    Column("object_id", Line, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("sealed", Line, nullable=False, server_default=""),
    Column("key_id", Line, nullable=False, server_default=""),
    Index(None, "team_id", "object_id"),
    Index(None, "created_at"),
    Index(None, "key_id"),
)

secret = Table(
    "secret",
    metadata,
    Column("team_id", Line, ForeignKey("team.id"), primary_key=True),
    Column("scope", Line, primary_key=True),
    Column("name", Line, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("sensitive", Boolean, nullable=False),
    Column("policy", Line, nullable=False),
    Column("key_id", Line, nullable=False),
    Column("sealed", Line, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Column("labels", Json, nullable=False, server_default="{}"),
    Index(None, "key_id"),
)

volume = Table(
    "volume",
    metadata,
    Column("id", Line, primary_key=True),
    Column("team_id", Line, ForeignKey("team.id"), nullable=False),
    Column("name", Line, nullable=False),
    Column("provider", Line, nullable=False),
    Column("state", Line, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("size_mib", Integer),
    UniqueConstraint("team_id", "name"),
    Index(None, "team_id", "id"),
    Index(None, "state"),
)

ssh_access = Table(
    "ssh_access",
    metadata,
    Column("id", Line, primary_key=True),
    Column("team_id", Line, ForeignKey("team.id"), nullable=False),
    Column("sandbox_id", Line, nullable=False),
    Column("actor", Line, nullable=False),
    Column("proof", Line, nullable=False),
    Column("digest", Line, nullable=False),
    Column("user", Line, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("revoked_at", Double),
    Column("used_at", Double),
    Index(None, "team_id", "sandbox_id", "id"),
    Index(None, "digest"),
    Index(None, "expires_at"),
)

approval = Table(
    "approval",
    metadata,
    Column("id", Line, primary_key=True),
    Column("team_id", Line, ForeignKey("team.id"), nullable=False),
    Column("sandbox_id", Line, nullable=False),
    Column("kind", Line, nullable=False),
    Column("what", Line, nullable=False),
    Column("state", Line, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("body", Json, nullable=False),
    Index(None, "team_id", "id"),
    Index(None, "team_id", "state", "id"),
    Index(None, "sandbox_id", "kind", "what", "id"),
    Index(None, "sandbox_id", "created_at"),
    Index(None, "created_at"),
)
Index(
    "ix_approval_pending",
    approval.c.expires_at,
    sqlite_where=IS_PENDING,
    postgresql_where=IS_PENDING,
)

value = Table(
    "value",
    metadata,
    Column("name", Line, primary_key=True),
    Column("value", Json, nullable=False),
)

counter = Table(
    "counter",
    metadata,
    Column("name", Line, primary_key=True),
    Column("last", Serial, nullable=False),
)
"""Numbers that were given; unlike a sequence's, they come back when the transaction fails."""
