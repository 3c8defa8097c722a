"""The tables of ways in: tokens, sign-in links and sessions."""

from sqlalchemy import Column, Double, ForeignKey, Index, Table

from paddock.adapters.store.columns import Json, Line
from paddock.adapters.store.schema import metadata

sign_in_link = Table(
    "sign_in_link",
    metadata,
    Column("id", Line, primary_key=True),
    Column("team_id", Line, ForeignKey("team.id"), nullable=False),
    Column("person_id", Line, ForeignKey("person.id"), nullable=False),
    Column("digest", Line, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("used_at", Double),
    Column("made_with", Json, nullable=False, server_default="[]"),
    Index(None, "person_id"),
    Index(None, "expires_at"),
)

session = Table(
    "session",
    metadata,
    Column("id", Line, primary_key=True),
    Column("team_id", Line, ForeignKey("team.id"), nullable=False),
    Column("holder", Line, nullable=False),
    Column("token_id", Line, nullable=False),
    Column("digest", Line, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("used_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("agent", Line, nullable=False),
    Column("made_with", Json, nullable=False, server_default="[]"),
    Index(None, "team_id", "id"),
    Index(None, "holder", "id"),
    Index(None, "expires_at"),
)

token = Table(
    "token",
    metadata,
    Column("id", Line, primary_key=True),
    Column("team_id", Line, ForeignKey("team.id"), nullable=False),
    Column("name", Line, nullable=False),
    Column("role", Line, nullable=False),
    Column("digest", Line, nullable=False),
    Column("scopes", Json, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("used_at", Double),
    Column("person_id", Line, nullable=False, server_default=""),
    Column("made_with", Json, nullable=False, server_default="[]"),
    Index(None, "team_id", "id"),
    Index(None, "person_id"),
)
