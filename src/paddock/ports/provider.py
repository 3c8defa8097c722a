"""Where sandboxes run: the life of a machine, and a path to the guest inside it.

Everything that happens *inside* a sandbox (commands, files, terminals, processes) goes through the
guest and is the same everywhere. A provider is therefore small, and this is all of it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from paddock.domain.egress import CLOSED, EgressPolicy
from paddock.domain.guest import GuestAddress
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.domain.volume import VolumeMount
from paddock.ports.volumes import VolumeFiles


class Isolation(StrEnum):
    """What stands between a sandbox and the host."""

    NONE = "none"
    CONTAINER = "container"
    """Namespaces, seccomp and few capabilities on a shared kernel."""
    USER_KERNEL = "user_kernel"
    """gVisor: the sandbox talks to a kernel of its own in user space."""
    MICROVM = "microvm"


class PauseKind(StrEnum):
    """What a pause keeps."""

    NO = "no"
    DISK = "disk"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider can do, said beforehand. What is not a flag is mandatory."""

    isolation: Isolation
    pause: PauseKind = PauseKind.NO
    stop: bool = False
    """stop() and start(): the machine ends, the disk stays."""
    archive: bool = False
    """archive(): the disk of a stopped sandbox becomes a compressed copy until it is started."""
    sleeping_disk: bool = False
    """open_disk(): files of a stopped or paused sandbox are read without waking it."""
    snapshot: bool = False
    fork: bool = False
    egress: bool = False
    """Honours an EgressPolicy other than its default at creation."""
    live_egress: bool = False
    allowlist: bool = False
    """Honours the mode `allowlist` and its rules; with `live_egress` also changes of them."""
    any_image: bool = False
    late_ports: bool = False
    """endpoint() works for ports that were not declared at creation."""
    expires_itself: bool = False
    metrics: bool = False
    disk_limit: bool = False
    """disk_mib is enforced by the file system; otherwise it is watched."""
    snapshot_ignore: bool = False
    """snapshot() with `ignore`: what lies at those paths is not in the copy."""
    checkpoint: bool = False
    """snapshot() with memory: processes are written to disk too, and go on in another sandbox."""
    volumes: bool = False
    """create_volume() and what follows from it: directories that sandboxes share and that outlive
    them."""
    agents: bool = False
    """Sandboxes see the directory of agents that the provider was opened with at
    `domain.agent.AGENTS`: only to read and to execute, as it is at the moment, and as no part of
    their disk."""
    max_lifetime_s: float | None = None
    max_ports: int | None = None
    max_labels: int | None = None


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a sandbox shall be. `template` and `snapshot` exclude each other."""

    template: str = ""
    snapshot: SnapshotRef | None = None
    resources: Resources = field(default_factory=Resources)
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    egress: EgressPolicy = CLOSED
    ports: tuple[int, ...] = ()
    runtime: str = ""
    hardened: bool | None = None
    """None leaves it to the template."""
    volumes: tuple[VolumeMount, ...] = ()
    """They have been made before. A directory that is missing at a path is made."""
    image_mib: int | None = None
    """The largest image that may be fetched for it, if its template is an image's reference. It
    makes no other sandbox: a repeated request may have another limit."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A plain handle: any process can pick the sandbox up again with it."""

    provider: str
    id: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What the provider sees of a sandbox right now."""

    ref: Ref
    key: str
    state: SandboxState
    reason: Reason | None
    labels: Mapping[str, str]
    resources: Resources
    template: str
    created_at: float
    detail: str = ""
    """For people: what led to the reason."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a sandbox has used and uses; None where the provider cannot say."""

    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    disk_bytes: int | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How a user's port inside the sandbox is reached.

    `url` is set for a plain address, `socket` for a unix socket on this host that leads there and
    that only the user of this process may connect to. Where the port lives in a network namespace
    of this host, `netns_pid` and `netns_started` name a process in it and `port` the port on its
    loopback.
    """

    port: int
    url: str = ""
    socket: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    netns_pid: int | None = None
    netns_started: int | None = None
    """When that process began, in ticks since the host was started (field 22 of /proc/<pid>/stat):
    who enters looks at it first, because the number alone may be another's by then."""


@dataclass(frozen=True, slots=True)
class OpenDisk:
    """The disk of a sandbox that sleeps, for as long as somebody looks at it."""

    address: GuestAddress
    aclose: Callable[[], Awaitable[None]]
    """Once is enough, a second time is success; so is one after the disk has gone."""


class Status(StrEnum):
    """How a thing that was checked is."""

    OK = "ok"
    DEGRADED = "degraded"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a check: what was looked at, what was found, how to put it right."""

    name: str
    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """What check() found. Usable means that create() can be expected to work."""

    usable: bool
    findings: tuple[Finding, ...]


@runtime_checkable
class SpecCheck(Protocol):
    """Optional ability: validate a spec without creating a sandbox."""

    def check_spec(self, spec: SandboxSpec) -> None:
        """Raise what create() would for a template that is not there, or for more resources than
        the host has. Neither template nor snapshot: only resources. Nothing is made."""
        ...


@runtime_checkable
class Provider(Protocol):
    """A place where sandboxes run.

    Every method may raise Unavailable, Refused or Broken, and every one that needs room
    QuotaExceeded: when the vendor's quota, the disk or the addresses are used up for now, so that
    the same call works once others have left. Tasks wait then, and nobody goes to another
    provider. A wish that can never be met (more than the vendor's largest machine) is
    LimitExceeded or InvalidRequest. Who knows when to ask again says so in `retry_after_s`.

    Every method that takes a `ref` other than destroy() and delete_snapshot() raises NotFound when
    there is no such sandbox. A method whose flag in `capabilities` is off raises Unsupported and
    changes nothing.
    """

    name: str

    @property
    def capabilities(self) -> Capabilities: ...

    async def check(self) -> Health:
        """Reachable, credentials good, versions known. Raises nothing; faults are findings.

        A provider whose isolation is `none` has a finding named `isolation` that is not OK.
        """
        ...

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        """A running sandbox whose guest answers.

        The same key gives the same sandbox, also after a restart and to concurrent callers; the
        same key with another spec is Conflict. An unknown template is NotFound, an impossible
        limit InvalidRequest, an unknown volume NotFound; all before anything is made. On any
        failure nothing remains.
        Of a snapshot with memory the processes go on where they were, with what they had; the
        spec's env is that of commands started later.
        """
        ...

    async def observe(self, ref: Ref) -> Observation:
        """How it is now, asked anew each time."""
        ...

    def find(self, labels: Mapping[str, str]) -> AsyncIterator[Observation]:
        """Every sandbox of this provider that carries all of these labels, in any state."""
        ...

    async def pause(self, ref: Ref) -> Observation:
        """Nothing in it runs any more; pausing a paused sandbox is success."""
        ...

    async def resume(self, ref: Ref) -> Observation:
        """It runs again where it was paused; resuming a running sandbox is success."""
        ...

    async def stop(self, ref: Ref, reason: Reason = Reason.USER) -> Observation:
        """Its processes are gone, its disk is kept; stopping a stopped sandbox is success.

        Of an archived one it is Conflict: there is nothing to end.
        """
        ...

    async def start(self, ref: Ref) -> Observation:
        """A stopped sandbox runs again with the same disk, env, limits and supervised processes.

        Starting a running sandbox is success and changes nothing. The disk of an archived one is
        unpacked first, which takes time by its size; where that fails, it is archived as before.
        """
        ...

    async def archive(self, ref: Ref) -> Observation:
        """A stopped sandbox costs a compressed copy of its disk only, until start() or destroy().

        Everything on the disk is in the copy: owners, modes, times, links, holes, extended
        attributes, and what was removed of the template. Not kept are sockets, which are nothing
        while nobody listens, and what a file system knows beyond that, such as shared blocks. It
        is still found and observed, with its reason, labels and key. Archiving an archived sandbox
        is success; anything but a stopped one is Conflict. Of an archived one guest(), endpoint(),
        snapshot() and fork() are Conflict. Where it fails, the sandbox is stopped as before.
        """
        ...

    async def open_disk(self, ref: Ref) -> OpenDisk:
        """A guest that has the disk of a stopped or paused sandbox before it.

        Files are read from it as from the sandbox's own guest: by the same paths, with the same
        rights, and no link leads out of it. Nothing on the disk can be changed, none of the
        sandbox's programs is started, and to observe() it sleeps as before. Several may look at
        once. A start(), resume(), archive() or destroy() does not wait for those who look: they
        lose the connection. A running or archived sandbox is Conflict.
        """
        ...

    async def destroy(self, ref: Ref) -> None:
        """Nothing of it remains. Absent is success."""
        ...

    async def renew(self, ref: Ref, until: float) -> Observation:
        """For providers that end sandboxes by themselves: not before `until` (unix seconds)."""
        ...

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        """Its disk at one moment, consistent also while it runs; the sandbox goes on.

        Same key, same snapshot; the same key for another sandbox, or with another `memory` or
        `ignore`, is Conflict. With `memory` its processes at that moment are kept on disk as well,
        and need neither the sandbox nor this process to come back. That is Conflict unless it runs,
        and without the flag `checkpoint` Unsupported, whatever the key.

        `ignore` has rules of `domain.ignoring`. What the sandbox has at those paths beyond its
        template is not in the copy, and the snapshot says what that was; the sandbox itself keeps
        it. No link leads a rule elsewhere: one in the way ends it, one that is met goes itself.
        Rules that are none, or that cover where the sandbox's commands start, are InvalidRequest,
        and so are rules with `memory`; without the flag `snapshot_ignore` they are Unsupported.
        """
        ...

    def snapshots(self) -> AsyncIterator[Snapshot]:
        """Every snapshot of this provider."""
        ...

    async def delete_snapshot(self, ref: SnapshotRef) -> None:
        """Absent is success; sandboxes made of it are not touched."""
        ...

    async def fork(self, ref: Ref, key: str, spec: SandboxSpec) -> Observation:
        """A new sandbox with a copy of the disk; the source goes on. `spec` names no source.

        Keys are those of create(): the same key gives the same fork, and with another spec or of
        another sandbox it is Conflict.
        """
        ...

    async def create_volume(self, volume: str, size_mib: int | None) -> None:
        """An empty directory that belongs to the user of sandboxes; one that is there is success.

        Sandboxes whose spec names it see the same files at the same time. It is no part of their
        disk: neither of a snapshot or a fork, which mounts it anew, nor of a limit. With a size
        nothing is written beyond it; where that cannot be kept to (`disk_limit`), a size is
        Unsupported.
        """
        ...

    async def delete_volume(self, volume: str) -> None:
        """With all that is in it, also while sandboxes mount it: they find an empty directory, and
        start without it. Absent is success."""
        ...

    async def open_volume(self, volume: str) -> VolumeFiles:
        """Its files, without a sandbox. NotFound when there is none."""
        ...

    async def guest(self, ref: Ref) -> GuestAddress:
        """Where the guest answers. Conflict when the sandbox is not running.

        LimitExceeded as of endpoint().
        """
        ...

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        """How a port inside is reached; whether anybody listens there is not looked at.

        Conflict when the sandbox is not running. A port that was not declared at creation is
        Unsupported without `late_ports`.

        LimitExceeded when the provider takes no more requests now. Where it said when it will
        again, the error has `retry_after_s`, and stands for a limit on requests of this kind,
        whatever sandbox they are about: nobody asks before that. Without, only this sandbox is
        not asked about again at once.
        """
        ...

    async def set_egress(self, ref: Ref, policy: EgressPolicy) -> None:
        """The policy holds for whatever connects from now on; its processes go on.

        Under an allowlist connections that the new one does not allow are closed as well.
        """
        ...

    async def usage(self, ref: Ref) -> Usage:
        """What it has used until now."""
        ...

    async def aclose(self) -> None:
        """Let go of everything held in this process. Sandboxes go on."""
        ...
