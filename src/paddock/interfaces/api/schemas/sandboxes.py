"""Sandboxes as the API shows and takes them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.domain.egress import NetworkMode
from paddock.domain.lifetime import Lifetime, OnTimeout, Terms, idle_at
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import FLOORS, Limits, Resources, SandboxState
from paddock.domain.work import Work
from paddock.interfaces.api.schemas.common import (
    Env,
    Identity,
    Labels,
    Name,
    Port,
    Shape,
    Text,
    at,
    moment,
)
from paddock.interfaces.api.schemas.egress import EgressWishShape
from paddock.interfaces.api.schemas.policies import PolicyShape
from paddock.interfaces.api.schemas.volumes import Mounts, MountShape, show_mounts
from paddock.interfaces.api.schemas.work import WorkShape
from paddock.ports.provider import Usage
from paddock.services.amendments import Amendment
from paddock.services.begun import WAIT_S, Patience
from paddock.services.wishes import Wish

Owner = Annotated[
    Text,
    Field(
        max_length=200, description="whose it is outside of Paddock; `POST /v1/purge` forgets them"
    ),
]
AppName = Annotated[
    Name | Literal[""],
    Field(description="its programs have what is configured for this app and for the team"),
]
Seconds = Annotated[float, Field(allow_inf_nan=False)]


class ResourcesShape(Shape):
    """What a sandbox may use at most."""

    cpus: float
    memory_mib: int
    disk_mib: int
    pids: int


def _unsaid() -> Any:
    """As a factory, so that the schema promises no default: what is left out depends."""
    return None


class ResourcesWish(Shape):
    """What it shall be able to use at most. Each that is left out is the default for a new sandbox,
    and what its source has for one made of a snapshot or a fork."""

    cpus: Annotated[
        float, Field(ge=FLOORS["cpus"][0], le=4096, allow_inf_nan=False, default_factory=_unsaid)
    ]
    memory_mib: Annotated[
        int, Field(ge=FLOORS["memory_mib"][0], le=1 << 26, default_factory=_unsaid)
    ]
    disk_mib: Annotated[int, Field(ge=FLOORS["disk_mib"][0], le=1 << 30, default_factory=_unsaid)]
    pids: Annotated[int, Field(ge=FLOORS["pids"][0], le=1 << 22, default_factory=_unsaid)]

    def read(self) -> Limits:
        said: Limits = self.model_dump(exclude_unset=True)  # type: ignore[assignment]
        return said


class LifetimeShape(Shape):
    """How long it lives. Seconds; null is never."""

    timeout_s: Annotated[
        Seconds | None, Field(description="from each start on; then `on_timeout` happens")
    ]
    on_timeout: OnTimeout
    idle_timeout_s: Annotated[
        Seconds | None, Field(description="without any work it is stopped after so long")
    ]
    archive_after_s: Annotated[
        Seconds | None, Field(description="stopped for so long, it is archived")
    ]
    always_on: Annotated[
        bool, Field(description="exempt from idleness and from moderate memory pressure")
    ]


class LifetimeWish(Shape):
    """How long it shall live. Seconds; null is never. Each that is left out is the default of this
    installation (`lifetime.*` of its settings) for a new sandbox, and as it was for others."""

    timeout_s: Annotated[
        Seconds | None, Field(description="from each start on; then `on_timeout` happens")
    ] = Field(default_factory=_unsaid)
    on_timeout: OnTimeout = Field(default_factory=_unsaid)
    idle_timeout_s: Annotated[
        Seconds | None, Field(description="without any work it is stopped after so long")
    ] = Field(default_factory=_unsaid)
    archive_after_s: Annotated[
        Seconds | None, Field(description="stopped for so long, it is archived")
    ] = Field(default_factory=_unsaid)
    always_on: Annotated[
        bool, Field(description="exempt from idleness and from moderate memory pressure")
    ] = Field(default_factory=_unsaid)

    def read(self) -> Terms:
        said: Terms = self.model_dump(exclude_unset=True)  # type: ignore[assignment]
        return said


class EgressShape(Shape):
    """What it may reach; `/egress` of it says more."""

    mode: NetworkMode


class CreateSandbox(Shape):
    """What a new sandbox shall be; all of it can be left out."""

    template: Annotated[Text, Field(max_length=512, description="`base` unless said")] = ""
    snapshot: Annotated[Text, Field(max_length=128, description="instead of a template")] = ""
    name: Name | Literal[""] = ""
    provider: Annotated[Text, Field(max_length=64)] = ""
    labels: Labels = Field(default_factory=dict)
    env: Env = Field(default_factory=dict)
    resources: ResourcesWish | None = None
    lifetime: LifetimeWish | None = None
    keep_alive_s: Annotated[Seconds, Field(ge=0)] | None = None
    egress: EgressWishShape | None = None
    ports: list[Port] = Field(default_factory=list, max_length=64)
    runtime: Literal["", "crun", "runc", "runsc"] = ""
    hardened: bool | None = None
    owner: Owner = ""
    identity: Identity = ""
    another: Annotated[
        bool,
        Field(
            description="make a further one of the group; without it, the one that has the "
            "identity is the answer, in whatever state it is, and several are a conflict"
        ),
    ] = False
    wait_s: Annotated[
        Seconds,
        Field(gt=0, le=3600, description="at most so long for one that another caller is making"),
    ] = WAIT_S
    answer_after_s: (
        Annotated[
            Seconds,
            Field(
                gt=0,
                le=3600,
                description="respond with 202 and the state `creating` if the sandbox does not run "
                "by then; then follow the events `sandbox.progress`, `sandbox.running` and "
                "`sandbox.failed`",
            ),
        ]
        | None
    ) = None
    command_policy: PolicyShape | None = None
    app: AppName = ""
    volumes: Mounts = Field(default_factory=list)

    def read(self) -> Wish:
        return Wish(
            template=self.template,
            snapshot=self.snapshot,
            name=self.name,
            provider=self.provider,
            labels=self.labels,
            env=self.env,
            resources=self.resources.read() if self.resources else Limits(),
            lifetime=self.lifetime.read() if self.lifetime else Terms(),
            keep_alive_s=self.keep_alive_s,
            egress=self.egress.read() if self.egress else None,
            ports=tuple(self.ports),
            runtime=self.runtime,
            hardened=self.hardened,
            owner=self.owner,
            identity=self.identity,
            another=self.another,
            command_policy=self.command_policy.read() if self.command_policy else None,
            app=self.app,
            volumes=tuple(each.read() for each in self.volumes),
        )

    @property
    def patience(self) -> Patience:
        return Patience(self.wait_s, self.answer_after_s)


class ForkSandbox(Shape):
    """How the copy differs from its source."""

    name: Name | Literal[""] = ""
    labels: Labels = Field(default_factory=dict)
    env: Env = Field(default_factory=dict)
    resources: ResourcesWish | None = None
    lifetime: LifetimeWish | None = None
    keep_alive_s: Annotated[Seconds, Field(ge=0)] | None = None
    egress: EgressWishShape | None = None
    identity: Identity = ""
    app: AppName = ""

    def read(self) -> Wish:
        return Wish(
            app=self.app,
            name=self.name,
            labels=self.labels,
            env=self.env,
            resources=self.resources.read() if self.resources else Limits(),
            lifetime=self.lifetime.read() if self.lifetime else Terms(),
            keep_alive_s=self.keep_alive_s,
            egress=self.egress.read() if self.egress else None,
            identity=self.identity,
            another=True,
        )


class ChangeSandbox(Shape):
    """What shall be different; what is left out stays as it is."""

    name: Name | None = None
    labels: Labels | None = None
    lifetime: LifetimeWish | None = None
    timeout_s: Annotated[
        Seconds | None, Field(gt=0, description="it ends so many seconds from now")
    ] = None
    keep_alive_s: Annotated[
        Seconds | None, Field(ge=0, description="no idleness for so long from now; 0 ends it")
    ] = None
    public_ports: Annotated[list[Port], Field(max_length=64)] | None = None
    work: WorkShape | None = None

    def read(self) -> Amendment:
        public = None if self.public_ports is None else frozenset(self.public_ports)
        return Amendment(
            name=self.name,
            labels=self.labels,
            lifetime=self.lifetime.read() if self.lifetime else Terms(),
            timeout_s=self.timeout_s,
            keep_alive_s=self.keep_alive_s,
            public_ports=public,
            work=self.work.read() if self.work else None,
        )


class SetEnv(Shape):
    """Variables for every later command. None can be taken away; an empty value is a value."""

    env: Env


class SandboxShape(Shape):
    """A sandbox."""

    id: str
    name: str
    state: SandboxState
    reason: Reason | None
    detail: str
    provider: str
    template: str
    snapshot_id: str | None
    parent_id: str | None
    owner: str | None
    app: str | None
    resources: ResourcesShape
    labels: dict[str, str]
    identity: str
    env_names: list[str]
    egress: EgressShape
    ports: list[int]
    public_ports: list[int]
    volumes: list[MountShape]
    lifetime: LifetimeShape
    work: WorkShape | None
    created_at: datetime
    changed_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    active_at: datetime
    idle_at: datetime | None = Field(description="when it is stopped if no more work is seen")
    expires_at: datetime | None
    keep_alive_until: datetime | None
    quarantine: str | None = Field(description="why it was set aside: see /v1/quarantine")
    exposed_secrets: list[str] | None = Field(
        description="whose values its programs can read, by name; null where it is not looked up"
    )


class UsageShape(Shape):
    """What it has used and uses; null where the provider cannot say."""

    cpu_seconds: float | None
    memory_bytes: int | None
    memory_peak_bytes: int | None
    disk_bytes: int | None
    pids: int | None


def show(sandbox: SandboxRecord, exposed: Sequence[str] | None = None) -> SandboxShape:
    clock, lifetime = sandbox.clock, sandbox.lifetime
    running = sandbox.state is SandboxState.RUNNING
    return SandboxShape(
        id=sandbox.id,
        name=sandbox.name,
        state=sandbox.state,
        reason=sandbox.reason,
        detail=sandbox.detail,
        provider=sandbox.provider,
        template=sandbox.template,
        snapshot_id=sandbox.snapshot_id or None,
        parent_id=sandbox.parent_id or None,
        owner=sandbox.owner or None,
        app=sandbox.app or None,
        resources=_show_resources(sandbox.resources),
        labels=dict(sandbox.labels),
        identity=sandbox.identity,
        env_names=sorted(sandbox.env),
        egress=EgressShape(mode=sandbox.egress.mode or NetworkMode.NONE),
        ports=list(sandbox.ports),
        public_ports=sorted(sandbox.public_ports),
        volumes=show_mounts(sandbox.volumes),
        lifetime=_lifetime(lifetime),
        work=_work(sandbox.work),
        created_at=at(sandbox.created_at),
        changed_at=at(sandbox.changed_at),
        started_at=moment(sandbox.started_at),
        stopped_at=moment(clock.stopped_at),
        active_at=at(clock.active_at),
        idle_at=moment(idle_at(lifetime, clock)) if running else None,
        expires_at=moment(clock.expires_at),
        keep_alive_until=moment(clock.keep_alive_until),
        quarantine=sandbox.quarantine.why if sandbox.quarantine else None,
        exposed_secrets=None if exposed is None else list(exposed),
    )


def _show_resources(resources: Resources) -> ResourcesShape:
    return ResourcesShape.model_construct(
        cpus=resources.cpus,
        memory_mib=resources.memory_mib,
        disk_mib=resources.disk_mib,
        pids=resources.pids,
    )


def _work(work: Work | None) -> WorkShape | None:
    return WorkShape(directory=work.directory, base=work.base) if work else None


def _lifetime(lifetime: Lifetime) -> LifetimeShape:
    return LifetimeShape(
        timeout_s=lifetime.timeout_s,
        on_timeout=lifetime.on_timeout,
        idle_timeout_s=lifetime.idle_timeout_s,
        archive_after_s=lifetime.archive_after_s,
        always_on=lifetime.always_on,
    )


def show_usage(usage: Usage) -> UsageShape:
    return UsageShape(
        cpu_seconds=usage.cpu_seconds,
        memory_bytes=usage.memory_bytes,
        memory_peak_bytes=usage.memory_peak_bytes,
        disk_bytes=usage.disk_bytes,
        pids=usage.pids,
    )
