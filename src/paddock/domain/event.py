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
    SANDBOX_PROGRESS = "sandbox.progress"
    """While it is created: what is being built for it, and how far that is."""
    SANDBOX_RUNNING = "sandbox.running"
    SANDBOX_PAUSED = "sandbox.paused"
    SANDBOX_STOPPED = "sandbox.stopped"
    SANDBOX_ARCHIVED = "sandbox.archived"
    SANDBOX_FAILED = "sandbox.failed"
    SANDBOX_DELETING = "sandbox.deleting"
    SANDBOX_DELETED = "sandbox.deleted"
    SANDBOX_QUARANTINED = "sandbox.quarantined"
    """Set aside: it stands still, and nobody but an admin goes in."""
    SANDBOX_CLEARED = "sandbox.cleared"
    """Opened again, after a smoke test."""
    SANDBOX_DIVERTED = "sandbox.diverted"
    """Made on the fallback, because the provider in use is away."""
    SANDBOX_CHANGED = "sandbox.changed"
    """Something else than its state: a name, labels, its lifetime, its environment."""
    COMMAND_STARTED = "command.started"
    COMMAND_ENDED = "command.ended"
    COMMAND_DENIED = "command.denied"
    """By a policy; also when it only wants an approval first."""
    POLICY_CHANGED = "policy.changed"
    EGRESS_ALLOWED = "egress.allowed"
    """Connections that a sandbox made, summed up by where to."""
    EGRESS_DENIED = "egress.denied"
    EGRESS_CHANGED = "egress.changed"
    """What sandboxes may reach."""
    APPROVAL_REQUESTED = "approval.requested"
    """Somebody is asked whether a sandbox may reach a host, or run a command."""
    APPROVAL_ANSWERED = "approval.answered"
    APPROVAL_EXPIRED = "approval.expired"
    """Nobody answered in time, or the sandbox has gone."""
    SNAPSHOT_CREATED = "snapshot.created"
    SNAPSHOT_DELETED = "snapshot.deleted"
    SNAPSHOT_RESTORED = "snapshot.restored"
    VOLUME_CREATED = "volume.created"
    VOLUME_DELETED = "volume.deleted"
    PREVIEW_SHARED = "preview.shared"
    PREVIEW_REVOKED = "preview.revoked"
    SECRET_SET = "secret.set"  # noqa: S105 - the name of an event
    SECRET_DELETED = "secret.deleted"  # noqa: S105
    SECRET_BOUND = "secret.bound"  # noqa: S105
    """To hosts, and to a way of being used there."""
    SECRET_UNBOUND = "secret.unbound"  # noqa: S105
    SECRET_USED = "secret.used"  # noqa: S105
    """By requests of a sandbox, summed up by where to; also those that it was lacking for."""
    MODEL_USED = "model.used"
    """Tokens that a sandbox took of a model API, and what they cost."""
    SECRET_EXPOSED = "secret.exposed"  # noqa: S105
    """Its value itself is in a sandbox."""
    TEMPLATE_BUILT = "template.built"
    TEMPLATE_REMOVED = "template.removed"
    POOL_CHANGED = "pool.changed"
    PROVIDER_LOST = "provider.lost"
    PROVIDER_FOUND = "provider.found"
    PRESSURE_CHANGED = "pressure.changed"
    QUOTA_REACHED = "quota.reached"
    """Events caused by programs in a sandbox or by a task's agent are no longer stored."""
    TASK_PENDING = "task.pending"
    TASK_CREATING = "task.creating"
    TASK_RUNNING = "task.running"
    TASK_WAITING = "task.waiting"
    TASK_COMPLETING = "task.completing"
    TASK_COMPLETED = "task.completed"
    TASK_FAILED = "task.failed"
    TASK_CANCELLED = "task.cancelled"
    TASK_CANCELLING = "task.cancelling"
    """Somebody wants it to end."""
    TASK_PAUSING = "task.pausing"
    """Somebody wants it to stand still."""
    TASK_RESUMING = "task.resuming"
    """Somebody wants one that was paused to go on."""
    TASK_PROGRESS = "task.progress"
    """How far its agent says that it is."""
    TASK_VERDICT = "task.verdict"
    """What its agent itself says of a check."""
    TASK_APPROVAL = "task.approval"
    """A connection or a command of it waits for an approval, or that was answered."""
    TASK_PHASE = "task.phase"
    """Where in its work it is."""
    TASK_STALLED = "task.stalled"
    """It came no step further on the way to its agent, and is given out again."""
    TASK_HELD_UP = "task.held_up"
    """It stands still for so long that somebody should look: no room, or somebody is away."""
    TASK_DIAGNOSIS = "task.diagnosis"
    """What was found in a sandbox whose task is stuck, or that somebody asked about."""
    TASK_PULSE = "task.pulse"
    """Its sandbox does not tell of its agent, for how long; or it does again."""
    TASK_RESTARTED = "task.restarted"
    """Its agent had died or stood still, and was started again."""
    TASK_ROUND = "task.round"
    """What its agent said to be done was checked."""
    TASK_HEALTH = "task.health"
    """How the app is that its agent has worked at."""
    TASK_PLANNED = "task.planned"
    TASK_REVIEWED = "task.reviewed"
    TASK_MESSAGE = "task.message"
    """A message to its agent has come a step further."""
    TASK_REVERTED = "task.reverted"
    TASK_DELETED = "task.deleted"
    """Forgotten, with its messages and what its agent wrote."""
    TASK_ADOPTED = "task.adopted"
    """Of several that tried the same, this one was taken."""
    AGENT_STARTED = "agent.started"
    AGENT_THINKING = "agent.thinking"
    AGENT_MESSAGE = "agent.message"
    AGENT_TOOL_CALL = "agent.tool_call"
    AGENT_TOOL_RESULT = "agent.tool_result"
    AGENT_FILE_EDITED = "agent.file_edited"
    AGENT_USAGE = "agent.usage"
    AGENT_WAITING = "agent.waiting"
    AGENT_COMPLETED = "agent.completed"
    AGENT_ERROR = "agent.error"
    AGENT_OTHER = "agent.other"
    GUARDIAN_NOTED = "guardian.noted"
    """A rule has found something, and nothing is done about it."""
    GUARDIAN_NUDGED = "guardian.nudged"
    """The agent was told something."""
    GUARDIAN_ASKED = "guardian.asked"
    """The agent waits, and a person was asked."""
    GUARDIAN_PAUSED = "guardian.paused"
    GUARDIAN_STOPPED = "guardian.stopped"
    GUARDIAN_FAILED = "guardian.failed"
    """Something that should have been done could not be, or a reviewer gave no answer."""
    AUDIT_BROKEN = "audit.broken"
    """The audit log is not as it was written: an entry was changed, removed or put in."""
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
