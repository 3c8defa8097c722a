"""What is asked of a new sandbox, as the API takes it."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from paddock.domain.errors import InvalidRequest
from paddock.interfaces.client.server import without_nothing


def sandbox_wish(
    *,
    labels: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    ports: Iterable[int] = (),
    volumes: Mapping[str, str] | None = None,
    network: str | None = None,
    keep_alive: float | None = None,
    wait: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The body of a creation; what was not said is left to the server."""
    resources = _picked(more, {name: name for name in ("cpus", "memory_mib", "disk_mib", "pids")})
    return without_nothing(
        labels=dict(labels) if labels else None,
        env=dict(env) if env else None,
        ports=list(ports) or None,
        volumes=_mounts(volumes) or None,
        egress={"mode": network} if network else None,
        keep_alive_s=keep_alive,
        wait_s=wait,
        resources=resources or None,
        lifetime=lifetime(more) or None,
        **{name: value for name, value in more.items() if value != ""},
    )


def _mounts(volumes: Mapping[str, str] | None) -> list[dict[str, Any]]:
    """From where it is seen to which one: `name`, or `name:ro` to read only."""
    found = []
    for path, volume in (volumes or {}).items():
        name, _, how = volume.partition(":")
        if how not in ("", "ro", "rw"):
            raise InvalidRequest(
                f"{volume[:80]!r} says no way to mount a volume",
                remediation="use its name, or its name and `:ro`",
            )
        found.append({"volume": name, "path": path, "read_only": how == "ro"})
    return found


_LIFETIME = {
    "timeout": "timeout_s",
    "on_timeout": "on_timeout",
    "idle_timeout": "idle_timeout_s",
    "archive_after": "archive_after_s",
    "always_on": "always_on",
}


def lifetime(more: dict[str, Any]) -> dict[str, Any]:
    """Taken out of `more`. Infinity is for ever, which the API writes as null."""
    found = _picked(more, _LIFETIME)
    return {name: None if value == math.inf else value for name, value in found.items()}


def _picked(more: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    taken = {target: more.pop(name, None) for name, target in names.items()}
    return without_nothing(**taken)
