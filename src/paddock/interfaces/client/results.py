"""What calls answer with: plain frozen data."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from paddock.domain.errors import Broken
from paddock.domain.reason import Reason

T = TypeVar("T")


def read(kind: type[T], data: Any) -> T:
    """What a server answered, as the type that it should be; what we do not know is let go."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise Broken(
            f"the server's answer is not understood: {error}",
            remediation="compare `paddock version` on both sides",
        ) from error


@dataclass(frozen=True, slots=True)
class Resources:
    """What a sandbox may use at most."""

    cpus: float
    memory_mib: int
    disk_mib: int
    pids: int


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long a sandbox lives, in seconds; None is for ever."""

    timeout_s: float | None
    on_timeout: str
    idle_timeout_s: float | None
    archive_after_s: float | None
    always_on: bool


@dataclass(frozen=True, slots=True)
class Egress:
    """What a sandbox may reach."""

    mode: str


@dataclass(frozen=True, slots=True)
class Work:
    """Where in a sandbox the work is, and what it began with."""

    directory: str
    base: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume in a sandbox."""

    volume: str
    path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class VolumeInfo:
    """A volume as the server sees it."""

    id: str
    name: str
    provider: str
    state: str
    size_mib: int | None
    created_at: datetime
    used_bytes: int | None = None
    """None where it was not looked at, as in a list."""
    mounted_by: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class AgentCredential:
    """A credential that an agent could use; one of them is enough."""

    name: str
    state: str
    route: str
    path: str


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent as the server sees it for your team."""

    name: str
    title: str
    version: str
    package: str
    installed: bool
    ready: bool
    lacks: tuple[str, ...]
    """Why a task cannot use it now, and what to do."""
    credentials: tuple[AgentCredential, ...]
    modes: tuple[str, ...]
    keeps_to: tuple[str, ...]
    """Modes of work that it keeps to by itself."""
    resumes: bool
    tools: bool
    reports_usage: bool
    default_model: str


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """A sandbox as the server sees it."""

    id: str
    name: str
    state: str
    reason: str | None
    detail: str
    provider: str
    template: str
    snapshot_id: str | None
    parent_id: str | None
    owner: str | None
    app: str | None
    resources: Resources
    labels: dict[str, str]
    identity: str
    env_names: tuple[str, ...]
    egress: Egress
    ports: tuple[int, ...]
    public_ports: tuple[int, ...]
    volumes: tuple[Mount, ...]
    lifetime: Lifetime
    work: Work | None
    created_at: datetime
    changed_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    active_at: datetime
    idle_at: datetime | None
    expires_at: datetime | None
    keep_alive_until: datetime | None
    quarantine: str | None = None
    """Why it was set aside, if it was."""
    exposed_secrets: tuple[str, ...] | None = None
    """Whose values its programs can read; None where it was not looked up."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. A non-zero exit code is a result, not an error."""

    exit_code: int
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    reason: Reason = Reason.EXITED
    truncated: bool = False
    """There was more output than was kept."""
    seconds: float = 0.0

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode(errors="replace")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of a command's output: of `stdout`, `stderr` or `pty`, at its place in the stream."""

    stream: str
    offset: int
    data: bytes
    lost_bytes: int = 0
    """So many before it are not kept any more."""

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended."""

    exit_code: int
    reason: Reason
    seconds: float = 0.0
    cpu_seconds: float | None = None
    max_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """What is kept of one stream: bytes from `first` to `end`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """A command that was started."""

    id: str
    cmd: tuple[str, ...]
    cwd: str
    user: str
    started_at: datetime
    ended_at: datetime | None
    exit_code: int | None
    reason: Reason | None
    cpu_seconds: float | None
    streams: dict[str, Stream]

    @property
    def is_running(self) -> bool:
        return self.ended_at is None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a sandbox has used and uses; None where its provider cannot say."""

    cpu_seconds: float | None
    memory_bytes: int | None
    memory_peak_bytes: int | None
    disk_bytes: int | None
    pids: int | None


@dataclass(frozen=True, slots=True)
class Port:
    """A port that a program inside listens on."""

    port: int
    address: str
    command: str
    url: str
    public: bool


@dataclass(frozen=True, slots=True)
class Link:
    """A link that opens a private port to whoever has it, until it ends."""

    url: str
    port: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Ignored:
    """What a template's rules have left out of a snapshot."""

    rules: tuple[str, ...] = ()
    applied: bool = False
    whole_because: str | None = None
    """Why everything is in it although there were rules."""
    left_out: tuple[str, ...] = ()
    """The first of the paths; `left_out_count` has how many there were."""
    left_out_count: int = 0
    left_out_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A disk at one moment."""

    id: str
    name: str
    provider: str
    sandbox_id: str
    template: str
    labels: dict[str, str]
    env_names: tuple[str, ...]
    size_bytes: int | None
    automatic: bool
    created_at: datetime
    expires_at: datetime | None
    ignore: Ignored = field(default_factory=Ignored)
    state: str = "ready"
    """Or `taking`."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; `seq` is its place in the log."""

    seq: int
    kind: str
    subject: str
    at: datetime
    actor: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApprovalInfo:
    """A question to people, and what they answered."""

    id: str
    kind: str
    state: str
    sandbox_id: str
    sandbox: str
    app: str | None
    task_id: str | None
    title: str
    detail: Mapping[str, Any]
    """All there is to know of it; gone once it is answered."""
    why: str
    asked_by: str
    count: int
    created_at: datetime
    last_at: datetime
    expires_at: datetime
    answered_at: datetime | None
    answered_by: str | None
    level: str | None
    rule: str | None
    note: str

    @property
    def allowed(self) -> bool:
        return self.state.startswith("allowed")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file, a directory or a link in a sandbox. Bytes of a name that are no UTF-8 are lone
    surrogates, as everywhere in Python."""

    name: str
    path: str
    kind: str
    size: int
    mode: str
    """Permissions in octal."""
    owner: str
    group: str
    modified_at: datetime
    symlink_target: str | None = None

    @property
    def is_dir(self) -> bool:
        return self.kind == "directory"


@dataclass(frozen=True, slots=True)
class FileChange:
    """Something that changed in a directory that is watched."""

    name: str
    change: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """What was copied."""

    files: int
    bytes: int
    skipped: tuple[str, ...] = ()
    """Links that would have led outside, and what is neither file, directory nor link."""


def data_of(message: Mapping[str, Any]) -> bytes:
    """The bytes of a message that has them as text, or as base64 where they are none."""
    if "data_base64" in message:
        return base64.b64decode(message["data_base64"])
    return str(message.get("data", "")).encode()
