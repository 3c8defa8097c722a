"""What happened: one vocabulary, one log, read by cursor."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paddock.domain.errors import InvalidRequest

CUSTOM_KIND = r"custom(\.[a-z][a-z0-9_]{0,30}){1,4}"
"""What others may tell of; nothing of ours begins so."""


class EventKind(StrEnum):
    """Every kind of event that is ours; the reference page is made from this list."""

    SANDBOX_CREATING = "sandbox.creating"
    SANDBOX_RUNNING = "sandbox.running"
    SANDBOX_PAUSED = "sandbox.paused"
    SANDBOX_STOPPED = "sandbox.stopped"
    SANDBOX_ARCHIVED = "sandbox.archived"
    SANDBOX_FAILED = "sandbox.failed"
    SANDBOX_DELETING = "sandbox.deleting"
    SANDBOX_DELETED = "sandbox.deleted"
    SANDBOX_CHANGED = "sandbox.changed"
    """Something else than its state: a name, labels, its lifetime, its environment."""
    COMMAND_STARTED = "command.started"
    COMMAND_ENDED = "command.ended"
    COMMAND_DENIED = "command.denied"
    """By a policy; also when it only wants an approval first."""
    POLICY_CHANGED = "policy.changed"
    SNAPSHOT_CREATED = "snapshot.created"
    SNAPSHOT_DELETED = "snapshot.deleted"
    SNAPSHOT_RESTORED = "snapshot.restored"
    PREVIEW_SHARED = "preview.shared"
    PREVIEW_REVOKED = "preview.revoked"
    SECRET_SET = "secret.set"  # noqa: S105 - the name of an event
    SECRET_DELETED = "secret.deleted"  # noqa: S105
    TEMPLATE_BUILT = "template.built"
    TEMPLATE_REMOVED = "template.removed"
    POOL_CHANGED = "pool.changed"
    PROVIDER_LOST = "provider.lost"
    PROVIDER_FOUND = "provider.found"
    PRESSURE_CHANGED = "pressure.changed"
    OWNER_FORGOTTEN = "owner.forgotten"
    """Events of theirs that were told before are now without what was personal in them."""
    APP_FORGOTTEN = "app.forgotten"
    """The same of an app."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. Never changed; `seq` grows with every event of the installation."""

    team_id: str
    kind: str
    """An EventKind, or what others tell of: `custom.…`."""
    subject: str
    """The id of what it happened to."""
    at: float
    data: Mapping[str, Any] = field(default_factory=dict)
    actor: str = ""
    seq: int = 0
    """Given by the store."""


def check_custom_kind(kind: str) -> str:
    """A kind that others may use, so that nobody's event passes for one of ours."""
    if re.fullmatch(CUSTOM_KIND, kind):
        return kind
    raise InvalidRequest(
        f"{kind[:80]!r} is no kind of event that can be told from outside",
        remediation="use custom.…, such as custom.agent.step: words of a-z, 0-9 and _",
    )


def remainder(data: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of an event's data when its owner is forgotten: nothing that names anything."""
    return {name: data[name] for name in ("state", "reason") if name in data} | {"forgotten": True}
