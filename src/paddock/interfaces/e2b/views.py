"""Sandboxes as E2B's clients read them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from paddock.domain.lifetime import MAX_TIMEOUT_S, OnTimeout
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.interfaces.e2b.ids import shown
from paddock.interfaces.e2b.marks import Mark, mark_of, metadata
from paddock.services.holders import Keys

ENVD_VERSION = "0.6.13"
"""What our guest behaves like: clients choose what to ask for by it."""
CLIENT_ID = "paddock"
STATES: Mapping[SandboxState, str] = {
    SandboxState.RUNNING: "running",
    SandboxState.PAUSED: "paused",
    SandboxState.STOPPED: "paused",
    SandboxState.ARCHIVED: "paused",
}
"""There are only two; a sandbox in any other state is not there."""
_PAUSE_MODES = {
    SandboxState.PAUSED: "full",
    SandboxState.STOPPED: "filesystem",
    SandboxState.ARCHIVED: "filesystem",
}


def made(sandbox: SandboxRecord, keys: Keys, domain: str) -> dict[str, Any]:
    """What a create or a connect answers: how it is reached."""
    return {
        "templateID": template_of(sandbox),
        "sandboxID": shown(sandbox.id),
        "clientID": CLIENT_ID,
        "alias": sandbox.name,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": keys.guest,
        "trafficAccessToken": keys.ports,
        "domain": domain,
    }


def listed(sandbox: SandboxRecord) -> dict[str, Any]:
    resources = sandbox.resources
    return {
        "templateID": template_of(sandbox),
        "sandboxID": shown(sandbox.id),
        "clientID": CLIENT_ID,
        "alias": sandbox.name,
        "startedAt": moment(sandbox.created_at),
        "endAt": moment(_end(sandbox)),
        "cpuCount": max(1, round(resources.cpus)),
        "memoryMB": resources.memory_mib,
        "diskSizeMB": resources.disk_mib,
        "state": STATES[sandbox.state],
        "envdVersion": ENVD_VERSION,
        "metadata": metadata(sandbox.labels),
        "volumeMounts": [{"name": mount.name, "path": mount.path} for mount in sandbox.volumes],
    }


def detailed(sandbox: SandboxRecord, keys: Keys | None, domain: str) -> dict[str, Any]:
    """With what opens it, unless it is for somebody who may only look."""
    internet = mark_of(sandbox, Mark.INTERNET)
    found = {
        **listed(sandbox),
        "domain": domain,
        "allowInternetAccess": internet == "true" if internet else None,
        "lifecycle": {
            "autoResume": mark_of(sandbox, Mark.AUTO_RESUME) == "true",
            "onTimeout": "kill" if sandbox.lifetime.on_timeout is OnTimeout.KILL else "pause",
        },
    }
    if keys is not None:
        found["envdAccessToken"] = keys.guest
    if sandbox.state in _PAUSE_MODES:
        found["pauseMode"] = _PAUSE_MODES[sandbox.state]
    return found


def template_of(sandbox: SandboxRecord) -> str:
    return mark_of(sandbox, Mark.TEMPLATE) or sandbox.template


def moment(seconds: float) -> str:
    return _date(seconds).isoformat().replace("+00:00", "Z")


def started_at_or_after(sandbox: SandboxRecord, earliest: datetime | None) -> bool:
    """Whether it started then or later. Compared as clients read it, rounded to microseconds."""
    if earliest is None:
        return True
    asked = earliest if earliest.tzinfo else earliest.replace(tzinfo=UTC)
    return _date(sandbox.created_at) >= asked


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _end(sandbox: SandboxRecord) -> float:
    """A client wants to know one; what has none ends later than any that has."""
    return sandbox.clock.expires_at or sandbox.changed_at + MAX_TIMEOUT_S
