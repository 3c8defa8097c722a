"""Forgetting an owner or an app: what is to go, how far that has come, and what cannot go."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from paddock.domain.errors import InvalidRequest
from paddock.domain.records import check_name, check_owner

PURGE_PREFIX = "prg"


class PurgeState(StrEnum):
    """How far a purge has come."""

    PLANNED = "planned"
    """A dry run: this is what would go."""
    RUNNING = "running"
    DONE = "done"
    BLOCKED = "blocked"
    """Something could not be removed; `kept` says what, and a new purge tries again."""


@dataclass(frozen=True, slots=True)
class Whose:
    """An owner or an app: exactly one of them."""

    owner: str = ""
    app: str = ""

    def __post_init__(self) -> None:
        if bool(self.owner) == bool(self.app):
            raise InvalidRequest(
                "a purge is of an owner or of an app"
                + (", not of both" if self.owner else "; neither is given"),
                remediation="say whose sandboxes shall go: `owner` or `app`",
            )
        if self.owner:
            check_owner(self.owner)
        else:
            check_name(self.app)


@dataclass(frozen=True, slots=True)
class Purge:
    """All that belongs to one owner or one app, removed."""

    id: str
    team_id: str
    actor: str
    digest: str
    """Of the owner's or the app's name, with a key of this installation: it tells whether somebody
    was forgotten to who knows the name, and the name to nobody."""
    created_at: float
    owner: str = ""
    """Empty when it is over: then the name, too, is forgotten."""
    app: str = ""
    """As the owner; one of them until it is over."""
    force: bool = False
    state: PurgeState = PurgeState.RUNNING
    subjects: tuple[str, ...] = ()
    """Whose events and audit entries are still to be cleared. Written down before anything of
    them is removed, so that a crash in between leaves nothing unfound."""
    removed: Mapping[str, int] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    """What is left, and why."""
    ended_at: float | None = None

    @property
    def whose(self) -> Whose:
        return Whose(self.owner, self.app)


def digest_of(key: str, team_id: str, whose: Whose) -> str:
    # No owner's name holds a line break, so that no owner has the digest of an app.
    name = whose.owner or f"app\n{whose.app}"
    return hmac.new(bytes.fromhex(key), f"{team_id}|{name}".encode(), hashlib.sha256).hexdigest()
