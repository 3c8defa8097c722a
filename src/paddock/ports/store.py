"""Where the control plane keeps what it knows.

A transaction is a function: `await store.write(work)` calls `work(transaction)`, commits what it
did, and gives back what it returned; when it raises, nothing was done. Nothing can be awaited
inside, so that no lock is ever held while a provider thinks. What one transaction wrote, every
later one sees, in every process.

Of all transactions that write, in all processes, one runs at a time: what a work has read is still
so when it writes. A work is called again from the start when the database asks for that, so it
does nothing but use its transaction. It may run in another thread.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from paddock.domain.audit import AuditEntry, Head
from paddock.domain.event import Event
from paddock.domain.intake import SourceState
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.repetition import KeptAnswer
from paddock.domain.sandbox import SandboxState
from paddock.domain.secret import Secret
from paddock.domain.volume import VolumeRecord, VolumeState
from paddock.ports import paging
from paddock.ports.approvals import Approvals
from paddock.ports.people import Links, People, Sessions, Teams, Tokens
from paddock.ports.quotas import Quotas
from paddock.ports.ssh_accesses import SshAccesses
from paddock.ports.tasks import Messages, Outputs, Steps, Tasks
from paddock.ports.team_images import TeamImages

T = TypeVar("T")
Page = paging.Page
ANY_TEAM = ""
"""For Paddock's own work only: the reaper and the reconciler see all teams."""


@dataclass(frozen=True, slots=True)
class SandboxFilter:
    """Which sandboxes; empty means all. Deleted ones are left out unless asked for by state."""

    labels: Mapping[str, str] = field(default_factory=dict)
    states: frozenset[SandboxState] = frozenset()
    name_prefix: str = ""
    provider: str = ""
    owner: str = ""
    identity: str = ""
    identity_prefix: str = ""


class Sandboxes(Protocol):
    """Sandboxes, newest first. A team sees its own; another's does not exist."""

    def add(self, sandbox: SandboxRecord) -> None:
        """Conflict when a sandbox of the team that is not deleted has the name."""
        ...

    def get(self, team_id: str, name_or_id: str) -> SandboxRecord | None:
        """By id in any state; by name when it is not deleted. Of ANY_TEAM only by id."""
        ...

    def list(self, team_id: str, wanted: SandboxFilter, page: Page) -> Sequence[SandboxRecord]: ...

    def replace(self, sandbox: SandboxRecord) -> SandboxRecord:
        """The new version, as stored; what `touch` has seen since it was read is kept.

        Conflict when it was changed since it was read, or when its name is taken. NotFound when it
        is not there.
        """
        ...

    def touch(self, active: Mapping[str, float]) -> None:
        """Work was seen in these (id → unix seconds). No new version, never backwards."""
        ...

    def purge(self, deleted_before: float, limit: int) -> int:
        """Forget deleted sandboxes for good; how many there were. One that a task worked in stays
        for as long as that: whose the task is, is known by it."""
        ...

    def forget(self, sandbox_id: str) -> None:
        """This one for good, at once."""
        ...


class Snapshots(Protocol):
    """Snapshots, newest first."""

    def add(self, snapshot: SnapshotRecord) -> None:
        """Conflict when the team has one of that name."""
        ...

    def get(self, team_id: str, name_or_id: str) -> SnapshotRecord | None: ...

    def list(self, team_id: str, sandbox_id: str, page: Page) -> Sequence[SnapshotRecord]: ...

    def owned(self, team_id: str, owner: str, page: Page) -> Sequence[SnapshotRecord]: ...

    def replace(self, snapshot: SnapshotRecord) -> None:
        """NotFound when it is not there, Conflict when its name is taken."""
        ...

    def remove(self, snapshot_id: str) -> None: ...

    def expired(self, now: float, limit: int) -> Sequence[SnapshotRecord]:
        """Those whose time is up, the longest expired first; none that is still being taken."""
        ...

    def unfinished(self, limit: int) -> Sequence[SnapshotRecord]:
        """Every team's that are being taken, or were when their process ended."""
        ...


class Volumes(Protocol):
    """Volumes, newest first."""

    def add(self, volume: VolumeRecord) -> None:
        """Conflict when the team has one of that name."""
        ...

    def get(self, team_id: str, name_or_id: str) -> VolumeRecord | None:
        """In any state. Of ANY_TEAM only by id."""
        ...

    def list(self, team_id: str, page: Page) -> Sequence[VolumeRecord]: ...

    def set_state(self, volume_id: str, state: VolumeState) -> None:
        """Absent is success."""
        ...

    def remove(self, volume_id: str) -> None: ...

    def unfinished(self, limit: int) -> Sequence[VolumeRecord]:
        """Every team's that are being made or deleted, or were when their process ended."""
        ...


class Events(Protocol):
    """The log of what happened, oldest first."""

    def append(self, events: Sequence[Event]) -> Sequence[Event]:
        """The same with their numbers, which grow in the order in which they become visible."""
        ...

    def after(
        self,
        seq: int,
        limit: int,
        *,
        team_id: str = ANY_TEAM,
        subject: str = "",
        kinds: frozenset[str] = frozenset(),
    ) -> Sequence[Event]: ...

    def before(self, seq: int, limit: int, *, subject: str) -> Sequence[Event]:
        """The last ones of a subject that are earlier, oldest first."""
        ...

    def forget(self, subject: str, after: int, limit: int) -> int:
        """Take out what is personal in the subject's next events; the last of them, 0 if none."""
        ...

    def last_seq(self) -> int: ...

    def first_seq(self) -> int:
        """The oldest that is still kept; 0 when there is none."""
        ...

    def prune(self, before: float, limit: int) -> int:
        """Forget the oldest, as far as they are all from before; how many there were.

        What is kept has no gaps, and numbers are never given again.
        """
        ...


class Sources(Protocol):
    """How far those who tell of events in a sandbox have come. Forgotten with the sandbox."""

    def get(self, sandbox_id: str, source: str) -> SourceState | None: ...

    def list(self, sandbox_id: str) -> Sequence[SourceState]:
        """By name."""
        ...

    def put(self, state: SourceState) -> None:
        """Conflict when there is no such sandbox."""
        ...


class Ends(Protocol):
    """Commands whose end was told. Forgotten with the sandbox."""

    def note_told(self, team_id: str, sandbox_id: str, command_id: str) -> bool:
        """Whether it is to be told now: it was not yet, and the sandbox is on record."""
        ...


class Audit(Protocol):
    """The chains of who did what: the installation's, and each team's own."""

    def append(self, entries: Sequence[AuditEntry]) -> Sequence[AuditEntry]: ...

    def after(self, seq: int, limit: int, *, team_id: str = ANY_TEAM) -> Sequence[AuditEntry]:
        """In order. Of a team, by the numbers of its own chain."""
        ...

    def redact(
        self, team_id: str, subjects: Sequence[str], numbers: Sequence[int] = ()
    ) -> tuple[int, int]:
        """Take the details of all that was done to these, and those of the entries with these
        numbers in the team's chain, out of the log; the chains still hold.

        How many it was, and how many are too old for it and stay.
        """
        ...

    def head(self, team_id: str = ANY_TEAM) -> Head:
        """The last link."""
        ...


class Keys(Protocol):
    """Idempotency keys: what a request with this key has made before."""

    def find(self, team_id: str, key: str, *, fingerprint: str) -> str | None:
        """The id that belongs to the key, if it has one. Conflict as when it is claimed."""
        ...

    def claim(self, team_id: str, key: str, *, fingerprint: str, object_id: str, now: float) -> str:
        """The id that belongs to the key: `object_id` when it is new, otherwise the earlier one.

        Conflict when the key was used for another request.
        """
        ...

    def keep(self, answer: KeptAnswer) -> None:
        """With the key, which was claimed for it."""
        ...

    def answer(self, team_id: str, key: str) -> KeptAnswer | None: ...

    def sealed_otherwise(self, key_id: str, limit: int) -> Sequence[KeptAnswer]:
        """Of all teams, those that another key of the vault seals."""
        ...

    def release(self, team_id: str, object_id: str) -> None:
        """What the key stood for was never made, or is forgotten with its answer: the same request
        may be tried again."""
        ...

    def drop(self, team_id: str, key: str) -> None:
        """This one key with its answer; absent is success."""
        ...

    def prune(self, before: float, limit: int) -> int: ...


class Secrets(Protocol):
    """Sealed values of teams, by name."""

    def get(self, team_id: str, scope: str, name: str) -> Secret | None: ...

    def list(self, team_id: str, scope: str, page: Page) -> Sequence[Secret]: ...

    def sensitive(self, team_id: str) -> Sequence[Secret]:
        """Of all scopes, those that are never shown."""
        ...

    def put(self, secret: Secret) -> None:
        """Instead of the one of that name, if there is one."""
        ...

    def remove(self, team_id: str, scope: str, name: str) -> bool:
        """Whether there was one."""
        ...

    def sealed_otherwise(self, key_id: str, limit: int) -> Sequence[Secret]:
        """Of all teams, those that another key seals."""
        ...


class Values(Protocol):
    """Named JSON values: settings changed at run time, the installation's id, wrapped keys."""

    def get(self, name: str) -> object | None: ...

    def all(self, prefix: str) -> Mapping[str, object]: ...

    def count(self, prefix: str) -> int: ...

    def put(self, name: str, value: object) -> None: ...

    def add(self, name: str, value: object) -> object:
        """Put it unless there is one; what is there now."""
        ...

    def remove(self, name: str) -> None: ...


class Transaction(Protocol):
    """Everything that can be read and written at one moment."""

    @property
    def teams(self) -> Teams: ...
    @property
    def tokens(self) -> Tokens: ...
    @property
    def people(self) -> People: ...
    @property
    def links(self) -> Links: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def sandboxes(self) -> Sandboxes: ...
    @property
    def snapshots(self) -> Snapshots: ...
    @property
    def volumes(self) -> Volumes: ...
    @property
    def events(self) -> Events: ...
    @property
    def sources(self) -> Sources: ...
    @property
    def ends(self) -> Ends: ...
    @property
    def audit(self) -> Audit: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def ssh(self) -> SshAccesses: ...
    @property
    def approvals(self) -> Approvals: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def outputs(self) -> Outputs: ...
    @property
    def values(self) -> Values: ...
    @property
    def quotas(self) -> Quotas: ...
    @property
    def team_images(self) -> TeamImages: ...


class Store(Protocol):
    """The database behind the control plane."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write to it too, so that news must be asked for."""
        ...

    @property
    def was_unused(self) -> bool:
        """Whether surely no other process had it open when this one opened it: what had been begun
        then is nobody's any more."""
        ...

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Unavailable when the database is lost, locked, full or behind, and nothing was done;
        only when the connection is lost during the commit itself, it may have been done after all.

        Who is cancelled while waiting does not know either; the work was done whole or not at all.
        """
        ...

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Everything the work reads is of one moment; it cannot write."""
        ...

    def on_events(self, hear: Callable[[Sequence[Event]], None]) -> None:
        """Call `hear` with the events of every transaction of this process, once committed, in
        order, in the event loop."""
        ...

    async def ping(self) -> None:
        """Unavailable when the database does not answer."""
        ...

    async def aclose(self) -> None: ...
