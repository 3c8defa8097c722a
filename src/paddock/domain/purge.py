"""Forgetting an owner: what is to go, how far that has come, and what cannot go."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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
class Purge:
    """All that belongs to one owner, removed."""

    id: str
    team_id: str
    actor: str
    digest: str
    """Of the owner's name, with a key of this installation: it tells whether somebody was
    forgotten to who knows the name, and the name to nobody."""
    created_at: float
    owner: str = ""
    """Empty when it is over: then the name, too, is forgotten."""
    force: bool = False
    state: PurgeState = PurgeState.RUNNING
    subjects: tuple[str, ...] = ()
    """Whose events and audit entries are still to be cleared. Written down before anything of
    them is removed, so that a crash in between leaves nothing unfound."""
    removed: Mapping[str, int] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    """What is left, and why."""
    ended_at: float | None = None


def digest_of(key: str, team_id: str, owner: str) -> str:
    return hmac.new(bytes.fromhex(key), f"{team_id}|{owner}".encode(), hashlib.sha256).hexdigest()
