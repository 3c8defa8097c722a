"""Sandboxes and snapshots as the control plane keeps them: who owns them, and what is wanted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from paddock.domain.command_policy import CommandPolicy
from paddock.domain.egress import EgressWish
from paddock.domain.errors import Conflict, InvalidRequest, NotFound
from paddock.domain.event import Event, EventKind
from paddock.domain.ignoring import Ignoring
from paddock.domain.lifetime import Clockwork, Lifetime
from paddock.domain.quarantine import Quarantine
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState, transition
from paddock.domain.volume import VolumeMount
from paddock.domain.work import Work

SANDBOX_PREFIX = "sbx"
SNAPSHOT_PREFIX = "snp"
INSTALLATION_LABEL = "paddock.installation"
"""On a provider's sandbox: the server that owns it."""
SANDBOX_LABEL = "paddock.sandbox"
"""On a provider's sandbox: the server's id of it."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SNAPSHOT_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_LOOKS_LIKE_ID = re.compile(r"[a-z]{3}[_-][0-9a-z]{26}")


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """One sandbox. Changed only by replacing it; `version` guards against a lost update."""

    id: str
    team_id: str
    name: str
    state: SandboxState
    provider: str
    created_at: float
    changed_at: float
    clock: Clockwork
    ref: str = ""
    """The provider's own id; empty until it has made the sandbox."""
    reason: Reason | None = None
    detail: str = ""
    """For people: what led to the reason."""
    template: str = ""
    snapshot_id: str = ""
    parent_id: str = ""
    """The sandbox it was forked from."""
    resources: Resources = field(default_factory=Resources)
    labels: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""
    """Of the work that it is for; the team's sandboxes that share one are a group."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    egress: EgressWish = field(default_factory=EgressWish)
    """Its own, beside those of its preset, its template and its app."""
    ports: tuple[int, ...] = ()
    public_ports: frozenset[int] = frozenset()
    """Whose previews need no link."""
    link_generation: int = 0
    """Links to its private previews are of a generation; revoking begins the next."""
    lifetime: Lifetime = field(default_factory=Lifetime)
    runtime: str = ""
    hardened: bool | None = None
    app: str = ""
    """Whose configuration its programs have, beside the team's."""
    command_policy: CommandPolicy | None = None
    """Its own, beside those of its team and its template."""
    started_at: float | None = None
    owner: str = ""
    """Whose it is outside of Paddock: a user of who uses the API. Never changed."""
    work: Work | None = None
    volumes: tuple[VolumeMount, ...] = ()
    task: str = ""
    """That it was last made or taken for, as Paddock knows it: who pays for models. Labels are
    what people say."""
    quarantine: Quarantine | None = None
    """It was set aside: nobody but an admin goes in."""
    holders: tuple[str, ...] = ()
    """Tokens and sessions that were given what opens its guest."""
    version: int = 0

    @property
    def is_gone(self) -> bool:
        return self.state in (SandboxState.DELETING, SandboxState.DELETED)

    @property
    def has_ended(self) -> bool:
        """It never runs again."""
        return self.is_gone or self.state is SandboxState.FAILED

    @property
    def holds_identity(self) -> bool:
        """Whether it is the one that is meant."""
        return not self.has_ended


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot and whose it is. It outlives the sandbox it was taken of."""

    id: str
    team_id: str
    name: str
    provider: str
    created_at: float
    ref: str = ""
    """The provider's own id; empty until it has been taken."""
    sandbox_id: str = ""
    template: str = ""
    resources: Resources = field(default_factory=Resources)
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Configuration goes with the disk. What is secret is not in here: it stays outside."""
    ports: tuple[int, ...] = ()
    command_policy: CommandPolicy | None = None
    """Goes along: a copy is not a way around it."""
    egress: EgressWish = field(default_factory=EgressWish)
    """The same."""
    size_bytes: int | None = None
    automatic: bool = False
    """Taken by Paddock before something destructive; these are the ones retention removes."""
    expires_at: float | None = None
    owner: str = ""
    """As its sandbox's: it goes back to nobody else."""
    app: str = ""
    """As its sandbox's, which it may outlive."""
    ignoring: Ignoring = field(default_factory=Ignoring)
    replacing: str = ""
    """While it is being taken: the name that it takes over from another of the same sandbox."""
    replacing_any: bool = False
    """Or of whichever sandbox."""
    quarantine: Quarantine | None = None
    """Its sandbox's when it was taken: it is evidence, and for admins."""


def taken(snapshot: SnapshotRecord | None, name: str) -> SnapshotRecord:
    """The snapshot that was found by a name, once it has been taken."""
    if snapshot is None:
        raise NotFound(
            f"there is no snapshot {name[:80]}",
            remediation="`paddock snapshot ls` shows those there are",
        )
    if not snapshot.ref:
        raise being_taken(snapshot)
    return snapshot


def being_taken(snapshot: SnapshotRecord) -> Conflict:
    return Conflict(
        f"snapshot {snapshot.replacing or snapshot.name} is being taken",
        remediation="try again when it is ready: `paddock snapshot ls` says so",
    )


def check_owner(owner: str) -> str:
    if len(owner) <= 200 and owner.isprintable() and owner.strip() == owner:
        return owner
    raise InvalidRequest(
        f"{owner[:80]!r} is no name of an owner",
        remediation="use up to 200 printable characters: an id is better than a name or an address",
    )


def check_same_owner(snapshot: SnapshotRecord, owner: str) -> None:
    """What was one's is not there for another, and whose it was is not said."""
    if snapshot.owner and owner != snapshot.owner:
        raise NotFound(
            f"there is no snapshot {snapshot.name} of that owner",
            remediation="`paddock snapshot ls` shows those there are",
        )


def check_name(name: str) -> str:
    """A name that can stand in a host name and is never taken for an id."""
    return _checked(name, _NAME, "a-z, 0-9 and '-', with a letter or digit at both ends")


def check_snapshot_name(name: str) -> str:
    """As check_name, but no host name has it, so it may have a '_'."""
    return _checked(name, _SNAPSHOT_NAME, "a-z, 0-9, '_' and '-', with no '-' at the ends")


def _checked(name: str, usable: re.Pattern[str], characters: str) -> str:
    if _LOOKS_LIKE_ID.fullmatch(name):
        raise InvalidRequest(
            f"the name {name!r} looks like an id, and would be taken for one",
            remediation="use another: not three letters, a '-' and 26 letters or digits",
        )
    if usable.fullmatch(name):
        return name
    raise InvalidRequest(
        f"the name {name[:80]!r} is not usable", remediation=f"use 1 to 63 of {characters}"
    )


def moved(
    sandbox: SandboxRecord,
    target: SandboxState,
    now: float,
    *,
    reason: Reason | None = None,
    detail: str = "",
) -> SandboxRecord:
    """The sandbox in its next state, or Conflict; its clock follows."""
    transition(sandbox.name, sandbox.state, target)
    clock, started_at = sandbox.clock, sandbox.started_at
    if target is SandboxState.RUNNING:
        timeout = sandbox.lifetime.timeout_s
        ends = [] if timeout is None else [now + timeout]
        if sandbox.state is SandboxState.PAUSED and (clock.expires_at or 0) > now:
            ends.append(clock.expires_at or 0)  # which was set for it while it ran or slept
        clock = replace(
            clock, active_at=now, stopped_at=None, expires_at=max(ends) if ends else None
        )
        started_at = now
    elif target is SandboxState.STOPPED:
        clock = replace(clock, stopped_at=now, keep_alive_until=None, expires_at=None)
    return replace(
        sandbox,
        state=target,
        reason=reason,
        detail=detail,
        clock=clock,
        started_at=started_at,
        changed_at=now,
    )


def alive(sandbox: SandboxRecord) -> SandboxRecord:
    """It, unless it is gone or about to be: then Conflict."""
    if sandbox.is_gone:
        raise Conflict(
            f"sandbox {sandbox.name} was deleted",
            remediation="create another, or restore one of its snapshots",
        )
    return sandbox


def app_in(record: SandboxRecord | SnapshotRecord) -> dict[str, str]:
    """What every event of it says, so that an app's events are found without its sandboxes."""
    return {"app": record.app} if record.app else {}


def event_of(sandbox: SandboxRecord, actor: str) -> Event:
    """The event that says in which state a sandbox is now, and why."""
    data: dict[str, object] = {"state": sandbox.state, "name": sandbox.name, **app_in(sandbox)}
    if sandbox.reason is not None:
        data["reason"] = sandbox.reason
    if sandbox.detail:
        data["detail"] = sandbox.detail
    return Event(
        team_id=sandbox.team_id,
        kind=EventKind(f"sandbox.{sandbox.state}"),
        subject=sandbox.id,
        at=sandbox.changed_at,
        data=data,
        actor=actor,
    )
