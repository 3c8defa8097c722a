"""What is written beside a sandbox, so that any later process finds it again.

A record is written before each step that makes something (write-ahead), as a whole and atomically;
the state in it says what a process that finds it after a crash has to finish or to undo.
"""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec

from paddock.adapters.providers.host.processes import Process
from paddock.adapters.providers.local.bundle import IdMap
from paddock.adapters.providers.local.layout import Layout
from paddock.adapters.providers.local.storage.faults import explain, explained
from paddock.domain.egress import CLOSED, EgressPolicy
from paddock.domain.errors import Broken
from paddock.domain.ignoring import LeftOut, Whole
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.domain.volume import VolumeMount
from paddock.ports.provider import Observation, Ref

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Machine:
    """The running part of a sandbox. It exists only while the host has not restarted."""

    boot_id: str
    init: Process
    guest: Process
    oom_kills: int = 0

    def alive(self) -> bool:
        return self.boot_id == boot_id() and self.init.alive() and self.guest.alive()


@dataclass(frozen=True, slots=True)
class Archived:
    """How large a disk was that is an archive now."""

    unpacked_bytes: int
    """What its files take, each for itself."""
    counted_bytes: int
    """What counted against its limit: less, where a fork shares blocks with its source."""


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """Everything the provider knows of one sandbox."""

    ref: str
    owner: str
    """The process that makes or changes it; meaningful in states that do not last."""
    state: SandboxState
    template: str
    digest: str
    lower: str
    runtime: str
    created_at: float
    resources: Resources
    key: str = ""
    """Empty as long as it waits in a warm pool."""
    fingerprint: str = ""
    """Of the spec it was made from: the same key with another spec is a conflict."""
    idmap: IdMap | None = None
    no_new_privs: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = "user"
    workdir: str = ""
    egress: EgressPolicy = CLOSED
    token: str = ""
    reason: Reason | None = None
    detail: str = ""
    machine: Machine | None = None
    network: int | None = None
    """The number of its address in the open network."""
    archive: Archived | None = None
    """Set while it is archived."""
    away: bool = False
    """Its guest was asked to leave, for a snapshot with memory: it has to be brought back."""
    volumes: tuple[VolumeMount, ...] = ()
    granted_bytes: int = 0
    """What counts against its disk limit only since it was unpacked, and is added to it."""

    @property
    def pooled(self) -> bool:
        return not self.key

    def observation(self, provider: str) -> Observation:
        return Observation(
            ref=Ref(provider, self.ref),
            key=self.key,
            state=self.state,
            reason=self.reason,
            labels=dict(self.labels),
            resources=self.resources,
            template=self.template,
            created_at=self.created_at,
            detail=self.detail,
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """What processes that were written down need in order to go on."""

    runtime: str
    """The version that wrote them: no other is known to read them."""
    guest: str
    """The file that their guest was started from."""
    resources: Resources
    agents: bool = False
    """They were shown the host's agents."""


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot: a volume, and the template layer it lies upon."""

    id: str
    key: str
    source: str
    template: str
    digest: str
    lower: str
    created_at: float
    runtime: str = ""
    idmap: IdMap | None = None
    owner: str = ""
    ready: bool = False
    """False until its volume is whole; then, if the owner is dead, it never will be."""
    size_bytes: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "user"
    workdir: str = ""
    no_new_privs: bool = False
    memory: Memory | None = None
    ignore: tuple[str, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)
    whole: Whole | None = None

    def snapshot(self, provider: str) -> Snapshot:
        return Snapshot(
            ref=SnapshotRef(provider, self.id),
            key=self.key,
            source=self.source,
            template=self.template,
            created_at=self.created_at,
            size_bytes=self.size_bytes,
            memory=self.memory is not None,
            ignore=self.ignore,
            left_out=self.left_out,
            whole=self.whole,
        )


@cache
def boot_id() -> str:
    """No process sees two of them."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Records:
    """The records of one installation, as files."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def write(self, record: SandboxRecord) -> SandboxRecord:
        path = self._layout.record(record.ref)
        with explained(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _write_atomically(path, msgspec.json.encode(record))
        return record

    def change(self, record: SandboxRecord, **changes: object) -> SandboxRecord:
        return self.write(replace(record, **changes))  # type: ignore[arg-type]

    def read(self, ref: str) -> SandboxRecord | None:
        way_out = f"remove the sandbox with `paddock sandbox rm --force local/{ref}`"
        return _read(self._layout.record(ref), SandboxRecord, way_out)

    def refs(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(entry.name for entry in os.scandir(self._layout.sandboxes))
        return []

    def all(self) -> Iterator[SandboxRecord]:
        """Every record that can be read; `damaged` has the others."""
        for ref in self.refs():
            with contextlib.suppress(Broken):
                if (record := self.read(ref)) is not None:
                    yield record

    def damaged(self) -> Iterator[Broken]:
        """What must be said about records that cannot be read. What they are of is left alone."""
        sandboxes = (partial(self.read, ref) for ref in self.refs())
        snapshots = (partial(self.read_snapshot, snapshot) for snapshot in self.snapshot_ids())
        looks: chain[Callable[[], object]] = chain(sandboxes, snapshots)
        for look in looks:
            try:
                look()
            except Broken as error:
                yield error

    def remove(self, ref: str) -> None:
        directory = self._layout.record(ref).parent
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(directory):
                Path(entry.path).unlink(missing_ok=True)
            directory.rmdir()

    def write_snapshot(self, record: SnapshotRecord) -> SnapshotRecord:
        path = self._layout.snapshot_record(record.id)
        with explained(path):
            _write_atomically(path, msgspec.json.encode(record))
        return record

    def read_snapshot(self, snapshot: str) -> SnapshotRecord | None:
        way_out = "remove the file and run `paddock doctor`, which sweeps what belongs to it"
        return _read(self._layout.snapshot_record(snapshot), SnapshotRecord, way_out)

    def snapshot_ids(self) -> list[str]:
        return sorted(path.stem for path in self._layout.snapshots.glob("*.json"))

    def snapshots(self) -> Iterator[SnapshotRecord]:
        """Every record that can be read; `damaged` has the others."""
        for snapshot in self.snapshot_ids():
            with contextlib.suppress(Broken):
                if (record := self.read_snapshot(snapshot)) is not None:
                    yield record

    def remove_snapshot(self, snapshot: str) -> None:
        self._layout.snapshot_record(snapshot).unlink(missing_ok=True)


class Keys:
    """Who made what with which key: one symbolic link each, made by exactly one process."""

    def __init__(self, layout: Layout) -> None:
        self._directory = layout.keys

    def _path(self, kind: str, key: str) -> Path:
        return self._directory / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:40]}"

    def claim(self, kind: str, key: str, target: str) -> str:
        """The target that holds the key: the one given, unless another was first."""
        path = self._path(kind, key)
        while True:
            try:
                path.symlink_to(target)
                return target
            except FileExistsError:
                if (holder := self.holder(kind, key)) is not None:
                    return holder
            except OSError as error:
                raise explain(error, path) from error

    def holder(self, kind: str, key: str) -> str | None:
        with contextlib.suppress(FileNotFoundError):
            return os.readlink(self._path(kind, key))  # noqa: PTH115 - a name, not a path
        return None

    def release(self, kind: str, key: str, target: str) -> None:
        if self.holder(kind, key) == target:
            self._path(kind, key).unlink(missing_ok=True)

    def entries(self) -> Iterator[tuple[Path, str, str]]:
        """Every link with its kind and target."""
        for path in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                yield path, path.name.partition("-")[0], os.readlink(path)  # noqa: PTH115


def persist(path: Path) -> None:
    """A file and its name are on the disk: before another copy of what it holds is deleted."""
    for place, flags in ((path, os.O_RDONLY), (path.parent, os.O_RDONLY | os.O_DIRECTORY)):
        with explained(path):
            descriptor = os.open(place, flags | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _write_atomically(path: Path, content: bytes) -> None:
    """Whole or not at all for every process, but not on the disk yet: see "When the power fails".

    To wait for the disk takes ten times as long as all the rest of it, and what is lost with the
    record, the volume that was made at the same time, would be lost nevertheless.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _read(path: Path, kind: type[_T], way_out: str) -> _T | None:
    try:
        content = path.read_bytes()
        if not content.strip(b"\0"):
            raise msgspec.DecodeError("it is empty, as a loss of power may leave it")
        return msgspec.json.decode(content, type=kind)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Broken(
            f"the record {path} cannot be read: {error}",
            remediation=f"restore it from a backup; or, if what it is of may go, {way_out}",
        ) from error
