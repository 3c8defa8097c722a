"""A chain of audit entries for each team, so that its export can be checked by itself."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

_LINE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_GENESIS = "0" * 64
_PAGE = 1000
_audit = sa.table(
    "audit",
    *(sa.column(name) for name in ("seq", "team_id", "actor", "action", "subject", "at")),
    *(sa.column(name) for name in ("detail", "seal", "team_seq", "team_previous", "team_hash")),
)


def upgrade() -> None:
    number = sa.Column("team_seq", _SERIAL, nullable=False, server_default="0")
    op.add_column("audit", number)
    for name in ("team_previous", "team_hash"):
        op.add_column("audit", sa.Column(name, _LINE, nullable=False, server_default=""))
    _fill()
    op.drop_index("ix_audit_team_id_seq", "audit")
    op.create_index("ix_audit_team_id_team_seq", "audit", ["team_id", "team_seq"], unique=True)


def _fill() -> None:
    """What there is joins its team's chain as it is now. The installation's chain is not touched:
    what was changed before today still shows there."""
    connection = op.get_bind()
    change = (
        sa.update(_audit)
        .where(_audit.c.seq == sa.bindparam("which"))
        .values({name: sa.bindparam(name) for name in ("team_seq", "team_previous", "team_hash")})
    )
    heads: dict[str, tuple[int, str]] = {}
    after = 0
    while page := _page(connection, after):
        connection.execute(change, [_linked(row, heads) for row in page])
        after = page[-1].seq


def _page(connection: sa.Connection, after: int) -> Sequence[Any]:
    query = sa.select(_audit).where(_audit.c.seq > after).order_by(_audit.c.seq).limit(_PAGE)
    return connection.execute(query).all()


def _linked(row: Any, heads: dict[str, tuple[int, str]]) -> dict[str, Any]:
    """Written out here: a link is what it was when it was made, whatever later versions do."""
    last, previous = heads.get(row.team_id, (0, _GENESIS))
    told = [row.team_id, row.actor, row.action, row.subject, row.at]
    content = ["team", last + 1, previous, *told, row.seal or _detail(row.detail)]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    made = hashlib.sha256(text.encode()).hexdigest()
    heads[row.team_id] = (last + 1, made)
    return {
        "which": row.seq,
        "team_seq": last + 1,
        "team_previous": previous,
        "team_hash": made,
    }


def _detail(text: str) -> object:
    """As it is read: what somebody has put there must not keep a server from starting."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"unreadable": text}
