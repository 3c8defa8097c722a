"""The record of a new sandbox, from what was asked for and what it is made of. Pure."""

from dataclasses import replace

from paddock.domain import names
from paddock.domain.build import Build
from paddock.domain.egress import EgressWish
from paddock.domain.errors import InvalidRequest
from paddock.domain.ids import new_id
from paddock.domain.image_reference import check_tenants
from paddock.domain.lifetime import Clockwork, Lifetime, kept_alive_until
from paddock.domain.quarantine import check_evidence
from paddock.domain.records import (
    SANDBOX_PREFIX,
    SandboxRecord,
    SnapshotRecord,
    check_name,
    check_owner,
    check_same_owner,
)
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.team import Principal
from paddock.services.wishes import Wish

DEFAULT_TEMPLATE = "base"
TEMPLATE_LABEL = "paddock.template"
"""On a sandbox that was asked for by the name of one of the team's own templates."""


def planned(
    team_id: str, wish: Wish, lifetime: Lifetime, provider: str, *, now: float
) -> SandboxRecord:
    """A new sandbox; `lifetime` and `provider` are used where the wish says nothing."""
    if wish.template and wish.snapshot:
        raise InvalidRequest(
            "a sandbox cannot be made of a template and a snapshot at once",
            remediation="give one of them",
        )
    check_tenants(wish.template)
    return SandboxRecord(
        id=new_id(SANDBOX_PREFIX),
        team_id=team_id,
        name=check_name(wish.name) if wish.name else names.invent(),
        state=SandboxState.CREATING,
        provider=wish.provider or provider,
        created_at=now,
        changed_at=now,
        clock=_wound(now, wish.keep_alive_s),
        template=wish.template or DEFAULT_TEMPLATE,
        resources=Resources().changed(wish.resources),
        labels=dict(wish.labels),
        identity=wish.identity,
        env=dict(wish.env),
        egress=wish.egress or EgressWish(),
        ports=wish.ports,
        lifetime=lifetime.changed(wish.lifetime),
        runtime=wish.runtime,
        hardened=wish.hardened,
        owner=check_owner(wish.owner),
        command_policy=wish.command_policy,
        app=check_name(wish.app) if wish.app else "",
    )


def of_build(wish: Wish, build: Build) -> Wish:
    """The wish for a sandbox of the team's own template. The label says so, for its start."""
    left = build.left
    return replace(
        wish,
        template="",
        snapshot=left.snapshot_id,
        env={**left.env, **wish.env},
        labels={**wish.labels, TEMPLATE_LABEL: wish.template},
    )


def of_snapshot(
    principal: Principal, record: SandboxRecord, wish: Wish, found: SnapshotRecord
) -> SandboxRecord:
    """Return the planned sandbox with the snapshot's settings."""
    check_evidence(found.quarantine, found.name, principal)
    if wish.provider and wish.provider != found.provider:
        raise InvalidRequest(
            f"snapshot {found.name} is on provider {found.provider}, not on {wish.provider}",
            remediation="leave the provider out",
        )
    if wish.owner:
        check_same_owner(found, wish.owner)
    return replace(
        record,
        owner=wish.owner or found.owner,
        provider=found.provider,
        snapshot_id=found.id,
        template=found.template,
        resources=found.resources.changed(wish.resources),
        env={**found.env, **wish.env},
        ports=wish.ports or found.ports,
        command_policy=wish.command_policy or found.command_policy,
        egress=wish.egress or found.egress,
        quarantine=found.quarantine,
    )


def forked(source: SandboxRecord, wish: Wish, *, now: float) -> SandboxRecord:
    """A copy of the source's disk and configuration, changed as the wish says."""
    return replace(
        source,
        id=new_id(SANDBOX_PREFIX),
        name=check_name(wish.name) if wish.name else names.invent(),
        state=SandboxState.CREATING,
        ref="",
        reason=None,
        detail="",
        parent_id=source.id,
        labels={**source.labels, **wish.labels},
        identity=wish.identity,
        env={**source.env, **wish.env},
        resources=source.resources.changed(wish.resources),
        command_policy=wish.command_policy or source.command_policy,
        hardened=source.hardened if wish.hardened is None else wish.hardened,
        lifetime=source.lifetime.changed(wish.lifetime),
        egress=wish.egress or source.egress,
        ports=wish.ports or source.ports,
        public_ports=frozenset(),
        app=check_name(wish.app) if wish.app else "",
        created_at=now,
        changed_at=now,
        clock=_wound(now, wish.keep_alive_s),
        started_at=None,
        version=0,
    )


def _wound(now: float, keep_alive_s: float | None) -> Clockwork:
    return Clockwork(active_at=now, keep_alive_until=kept_alive_until(keep_alive_s, now))
