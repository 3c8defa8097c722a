"""What is written on containers and images, so that any later process finds everything again.

An engine's labels cannot be changed, so only what never changes is in them; what does change is
something the engine itself knows (the state, the networks) or has a name of its own (a note).
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.names import INSTALLATION
from paddock.domain.errors import Broken, NotFound
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.ports.provider import Observation, Ref

_T = TypeVar("_T")

KIND = "paddock.kind"
RECORD = "paddock.record"

SANDBOX = "sandbox"
SNAPSHOT = "snapshot"
FORK = "fork"
TEMPLATE = "template"
NOTE = "note"
POLICY = "policy"
NETWORK = "network"
BUILD = "build"

JOINED = "joined"
PACKED = "packed"


@dataclass(frozen=True, slots=True)
class Maker:
    """The process that made something. Whether it lives can be told only where it ran."""

    host: str = ""
    run: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a template, an image or a snapshot says about every command."""

    template: str
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "user"
    workdir: str = ""


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """Everything of a sandbox that never changes."""

    key: str
    fingerprint: str
    """Of the spec it was made from: the same key with another spec is a conflict."""
    defaults: Defaults
    """With the variables of the spec among them."""
    labels: Mapping[str, str]
    resources: Resources
    created_at: float
    guest: str
    """JOINED or PACKED."""
    maker: Maker
    token: str


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """A snapshot, or the image that a fork stands on."""

    key: str
    source: str
    defaults: Defaults
    created_at: float
    maker: Maker


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """A container or an image that a template is being built with."""

    created_at: float
    maker: Maker


def labels(installation: str, kind: str, record: object) -> dict[str, str]:
    """The same few keys on everything, so that no label of an image shines through."""
    return {
        INSTALLATION: installation,
        KIND: kind,
        RECORD: msgspec.json.encode(record).decode(),
    }


def instructions(marks: Mapping[str, str]) -> list[str]:
    """The same as lines of a Dockerfile, in which nothing of a record may be taken for syntax."""
    return [f"LABEL {name}={_plain(value)}" for name, value in marks.items()]


def _plain(value: str) -> str:
    return base64.urlsafe_b64encode(value.encode()).decode() if value.startswith("{") else value


def read(found: Mapping[str, str] | None, kind: type[_T], where: str) -> _T:
    text = (found or {}).get(RECORD, "")
    try:
        record = text if text.startswith("{") else base64.urlsafe_b64decode(text)
        return msgspec.json.decode(record, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Broken(
            f"the label {RECORD} of {where} cannot be read: {error}",
            remediation="if it may go, remove it with the engine's own tools",
        ) from error


@dataclass(frozen=True, slots=True)
class Container:
    """A sandbox's container, as the engine describes it."""

    id: str
    name: str
    status: str
    pid: int
    exit_code: int
    oom_killed: bool
    started_at: float
    image: str
    networks: Mapping[str, str]
    """Names to the ids they had when it was connected."""
    record: SandboxRecord

    @classmethod
    def of(cls, seen: Mapping[str, Any]) -> "Container":
        state = seen["State"]
        networks = (seen.get("NetworkSettings") or {}).get("Networks") or {}
        return cls(
            id=seen["Id"],
            name=seen["Name"].lstrip("/"),
            status=state["Status"],
            pid=int(state.get("Pid") or 0),
            exit_code=int(state.get("ExitCode") or 0),
            oom_killed=bool(state.get("OOMKilled")),
            started_at=_seconds(state.get("StartedAt", "")),
            image=seen["Image"],
            networks={name: (at or {}).get("NetworkID", "") for name, at in networks.items()},
            record=read(seen["Config"].get("Labels"), SandboxRecord, seen["Name"]),
        )

    @property
    def state(self) -> SandboxState:
        match self.status:
            case "running" | "restarting":
                return SandboxState.RUNNING
            case "paused":
                return SandboxState.PAUSED
            case "removing":
                return SandboxState.DELETING
        return SandboxState.STOPPED

    def observation(
        self,
        provider: str,
        state: SandboxState,
        reason: Reason | None = None,
        detail: str = "",
    ) -> Observation:
        record = self.record
        return Observation(
            ref=Ref(provider, self.id),
            key=record.key,
            state=state,
            reason=reason,
            labels=dict(record.labels),
            resources=record.resources,
            template=record.defaults.template,
            created_at=record.created_at,
            detail=detail,
        )


async def find(engine: Engine, container: str, installation: str | None = None) -> Container:
    """By id or name; NotFound unless it is a sandbox, and one of the installation if named."""
    seen = await engine.get(f"containers/{container}/json", f"find container {container}")
    marks = seen["Config"].get("Labels") or {}
    ours = installation is None or marks.get(INSTALLATION) == installation
    if marks.get(KIND) != SANDBOX or not ours:
        raise NotFound(f"container {container} is not a sandbox of this installation")
    return Container.of(seen)


def snapshot_of(provider: str, image: str, record: ImageRecord, size: int | None) -> Snapshot:
    return Snapshot(
        ref=SnapshotRef(provider, image.removeprefix("sha256:")),
        key=record.key,
        source=record.source,
        template=record.defaults.template,
        created_at=record.created_at,
        size_bytes=size,
    )


def _seconds(stamp: str) -> float:
    """Unix seconds of an engine's time; before 1970 where nothing has happened yet."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return 0.0
