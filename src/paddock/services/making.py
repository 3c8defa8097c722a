"""How a sandbox comes into being: once per key, and wholly or not at all."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace

from paddock.domain import names
from paddock.domain.egress import EgressWish
from paddock.domain.errors import Conflict, InvalidRequest, NotFound, PaddockError, known
from paddock.domain.ids import new_id
from paddock.domain.image_reference import check_tenants
from paddock.domain.lifetime import Clockwork, Lifetime, kept_alive_until
from paddock.domain.quarantine import check_evidence
from paddock.domain.quota import usage_of
from paddock.domain.reason import Reason
from paddock.domain.records import (
    INSTALLATION_LABEL,
    SANDBOX_LABEL,
    SANDBOX_PREFIX,
    SandboxRecord,
    check_name,
    check_owner,
    check_same_owner,
    event_of,
    moved,
    taken,
)
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.snapshot import SnapshotRef
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.provider import Observation, Provider, Ref, SandboxSpec
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services import begun, quarantine_cases
from paddock.services.admission import Admission
from paddock.services.changes import Changes
from paddock.services.egress_changes import described
from paddock.services.fallback import Fallback, Made, Route
from paddock.services.identity import holder, on_record
from paddock.services.mounting import mounted
from paddock.services.networks import Modes, Networks, fit
from paddock.services.once import fingerprint_of
from paddock.services.providers import Providers
from paddock.services.quotas import check_quota
from paddock.services.team_images import TeamImages
from paddock.services.wishes import Wish, bound

_log = logging.getLogger(__name__)
DEFAULT_TEMPLATE = "base"
WAIT_S = 300.0
"""How long a caller waits for a sandbox that another one is making."""
Configure = Callable[[SandboxRecord], Awaitable[None]]
"""Gives a machine that has just begun to run what is configured for its app."""
_FORKABLE = (SandboxState.RUNNING, SandboxState.PAUSED, SandboxState.STOPPED)


class Making:
    """Creations and forks. Each goes on to its end when who asked for it goes away."""

    def __init__(
        self,
        store: Store,
        changes: Changes,
        providers: Providers,
        *,
        clock: Clock,
        installation: str,
        admission: Admission | None = None,
    ) -> None:
        self.fallback = Fallback(store, clock, providers, changes=changes)
        self.images = TeamImages(store, clock, providers)
        self._store = store
        self._changes = changes
        self._providers = providers
        self._clock = clock
        self._installation = installation
        self._admission = admission
        self._underway: dict[str, asyncio.Task[SandboxRecord]] = {}
        self.configure: Configure = _nothing_to_configure
        self.wakings: list[Configure] = []
        self.concerns: Callable[[SandboxRecord], bool] = lambda _sandbox: False
        """Whether it is to be configured at all."""
        self.networks: Networks = Modes()
        self.lifetime = Lifetime()
        """What a wish does not say; may be changed at any time."""

    async def create(
        self, principal: Principal, wish: Wish, key: str = "", *, wait_s: float = WAIT_S
    ) -> SandboxRecord:
        """A running sandbox. The same key gives the same one, also after a restart; so does the
        same identity, in whatever state that one is. TimedOut while another caller makes it."""
        principal.require(Scope.SANDBOXES_WRITE)
        record = await self._plan(principal, wish)
        return await self._enter(principal, record, key, ("create", wish), wait_s=wait_s)

    async def fork(
        self, principal: Principal, source: SandboxRecord, wish: Wish, key: str = ""
    ) -> SandboxRecord:
        """A new sandbox with a copy of the source's disk and configuration; the source goes on. The
        copy of one that was set aside is set aside as well."""
        principal.require(Scope.SANDBOXES_WRITE)
        if source.state not in _FORKABLE:
            raise Conflict(
                f"sandbox {source.name} is {source.state} and cannot be forked",
                remediation="start it first, or fork one of its snapshots",
            )
        now = self._clock.wall()
        record = replace(
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
        return await self._enter(principal, record, key, (f"fork {source.id}", wish))

    async def resume_making(self, record: SandboxRecord, principal: Principal) -> SandboxRecord:
        """Go on with a creation that a restart interrupted."""
        return await self._follow(record, principal)

    def is_making(self, sandbox_id: str) -> bool:
        return sandbox_id in self._underway

    async def break_off(self, record: SandboxRecord, principal: Principal, why: str) -> None:
        """Nobody wants it any more: what this process is making of it is undone."""
        if (task := self._underway.get(record.id)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._give_up(record, principal, Conflict(why))

    async def aclose(self) -> None:
        """Leave what is half made to the next start, which finds it by its key."""
        tasks = list(self._underway.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _plan(self, principal: Principal, wish: Wish) -> SandboxRecord:
        if wish.template and wish.snapshot:
            raise InvalidRequest(
                "a sandbox cannot be made of a template and a snapshot at once",
                remediation="give one of them",
            )
        check_tenants(wish.template)
        now = self._clock.wall()
        record = SandboxRecord(
            id=new_id(SANDBOX_PREFIX),
            team_id=principal.team_id,
            name=check_name(wish.name) if wish.name else names.invent(),
            state=SandboxState.CREATING,
            provider=wish.provider or self._providers.default,
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
            lifetime=self.lifetime.changed(wish.lifetime),
            runtime=wish.runtime,
            hardened=wish.hardened,
            owner=check_owner(wish.owner),
            command_policy=wish.command_policy,
            app=check_name(wish.app) if wish.app else "",
        )
        if wish.snapshot:
            return await self._of_snapshot(principal, record, wish)
        self.fallback.check(record.provider, bound(wish))
        return record

    async def _of_snapshot(
        self, principal: Principal, record: SandboxRecord, wish: Wish
    ) -> SandboxRecord:
        named = await self._store.read(lambda tx: tx.snapshots.get(record.team_id, wish.snapshot))
        found = taken(named, wish.snapshot)
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

    async def _enter(
        self,
        principal: Principal,
        record: SandboxRecord,
        key: str,
        request: tuple[str, Wish],
        *,
        wait_s: float = WAIT_S,
    ) -> SandboxRecord:
        """Write it down first, so that a restart finds what was begun."""
        verb, wish = request
        route = await self._route(principal, record, wish)
        record = self.fallback.planned(replace(record, task=wish.task, holders=()), route)

        def enter(tx: Transaction) -> SandboxRecord:
            if wish.identity and not wish.another:
                holding = holder(tx, record.team_id, wish.identity)
                if holding is not None:
                    return holding
            if key:
                what = {"fingerprint": fingerprint_of(verb, wish), "object_id": record.id}
                claimed = tx.keys.claim(record.team_id, key, **what, now=record.created_at)
                if claimed != record.id:
                    return on_record(tx.sandboxes.get(record.team_id, claimed), claimed)
            check_quota(tx, record.team_id, usage_of(record.resources))
            made = mounted(tx, record, wish.volumes)
            tx.sandboxes.add(made)
            quarantine_cases.open_for_copy(tx, made)
            tx.events.append([event_of(record, principal.actor)])
            if route.away is not None:
                self.fallback.note(tx, record, route.away, principal)
            action = "sandbox.fork" if record.parent_id else "sandbox.create"
            detail = {"egress": described(record.egress)}
            tx.audit.append([self._changes.entry(principal, record, action, detail)])
            return made

        with self._admission.reserved() if self._admission else nullcontext():
            entered = await self._store.write(enter)
            if entered.state is not SandboxState.CREATING:
                return entered
            return await self._follow(entered, principal, wait_s, route)

    async def _route(self, principal: Principal, record: SandboxRecord, wish: Wish) -> Route:
        def replan(at: SandboxRecord) -> SandboxRecord:
            fresh = replace(at, egress=record.egress)
            return replace(at, egress=self.networks.chosen(principal, fresh, wish.egress))

        return await self.fallback.route(bound(wish, record.parent_id), replan)

    async def _follow(
        self,
        record: SandboxRecord,
        principal: Principal,
        wait_s: float = WAIT_S,
        route: Route | None = None,
    ) -> SandboxRecord:
        task = self._underway.get(record.id)
        if task is not None:
            return await begun.awaited(task, record, wait_s)
        task = asyncio.create_task(self._make(record, principal, route), name=f"make {record.id}")
        self._underway[record.id] = task
        task.add_done_callback(lambda _: self._underway.pop(record.id, None))
        return await asyncio.shield(task)

    async def _make(
        self, record: SandboxRecord, principal: Principal, route: Route | None
    ) -> SandboxRecord:
        async with self._changes.alone(record.id):
            try:
                making = self.fallback.make(record, route, self._there, principal)
                record, spec, seen = await making
                await self.begin(self._providers.get(record.provider), record, seen)
            except Exception as error:
                await self._give_up(record, principal, known(error))
                raise
            now = self._clock.wall()

            def runs(current: SandboxRecord) -> SandboxRecord:
                if current.provider != record.provider:  # another process has diverted it
                    raise Conflict(
                        f"sandbox {current.name} is made on {current.provider} by now",
                        remediation="ask for it again, with the same key",
                    )
                if current.ref == seen.ref.id:
                    return current  # another process was asked for the same, and was quicker
                return replace(
                    moved(current, SandboxState.RUNNING, now, detail=current.detail),
                    ref=seen.ref.id,
                    template=seen.template,
                    resources=seen.resources,
                )

            made = await self._changes.apply(record.id, runs, principal)
            return await fit(self.networks, made, spec.egress)

    async def _there(self, record: SandboxRecord) -> Made:
        provider, spec = self._providers.get(record.provider), await self._spec(record)
        return record, spec, await self._ask(provider, record, spec)

    async def wake(self, sandbox: SandboxRecord) -> None:
        """What was over when it fell asleep stays so; what was set meanwhile, it is given."""
        for first in (*self.wakings, self.configure):
            await first(sandbox)

    async def begin(self, provider: Provider, record: SandboxRecord, seen: Observation) -> None:
        """One that cannot have its app's configuration is not made."""
        if not self.concerns(record):
            return
        try:
            running = replace(record, state=SandboxState.RUNNING, ref=seen.ref.id)
            await self.configure(running)
        except PaddockError:
            await provider.destroy(seen.ref)
            raise

    async def _ask(
        self, provider: Provider, record: SandboxRecord, spec: SandboxSpec
    ) -> Observation:
        if not record.parent_id:
            return await self.images.create(provider, record, spec)
        source = await self._store.read(lambda tx: tx.sandboxes.get(ANY_TEAM, record.parent_id))
        if source is None or source.is_gone:
            raise Conflict(
                f"sandbox {record.name} cannot be made: the sandbox it is a fork of is gone",
                remediation="fork another, or restore a snapshot",
            )
        bare = replace(spec, template="", snapshot=None)
        return await provider.fork(Ref(source.provider, source.ref), record.id, bare)

    async def _spec(self, record: SandboxRecord) -> SandboxSpec:
        if not record.snapshot_id or record.parent_id:
            return self.spec(record)
        wanted = (record.team_id, record.snapshot_id)
        found = await self._store.read(lambda tx: tx.snapshots.get(*wanted))
        if found is None:
            raise NotFound(f"snapshot {record.snapshot_id} was deleted meanwhile")
        return self.spec(record, SnapshotRef(found.provider, found.ref))

    def spec(self, record: SandboxRecord, snapshot: SnapshotRef | None = None) -> SandboxSpec:
        """What a provider is asked for."""
        return SandboxSpec(
            template="" if snapshot else record.template,
            snapshot=snapshot,
            resources=record.resources,
            env=record.env,
            labels={INSTALLATION_LABEL: self._installation, SANDBOX_LABEL: record.id},
            egress=self.networks.policy(record),
            ports=record.ports,
            runtime=record.runtime,
            hardened=record.hardened,
            volumes=record.volumes,
        )

    async def _give_up(
        self, record: SandboxRecord, principal: Principal, error: PaddockError
    ) -> None:
        """The provider left nothing behind, so neither do we: only the events tell of it (L7)."""
        _log.warning("sandbox could not be made", extra={"id": record.id, "error": error.message})
        now, detail = self._clock.wall(), error.message

        def undo(tx: Transaction) -> None:
            current = tx.sandboxes.get(ANY_TEAM, record.id)
            if current is None or current.state is not SandboxState.CREATING:
                return
            for state in (SandboxState.FAILED, SandboxState.DELETING, SandboxState.DELETED):
                current = moved(current, state, now, reason=Reason.CRASHED, detail=detail)
                tx.events.append([event_of(current, principal.actor)])
            tx.sandboxes.replace(current)
            tx.keys.release(record.team_id, record.id)

        await self._store.write(undo)


async def _nothing_to_configure(_sandbox: SandboxRecord) -> None:
    return


def _wound(now: float, keep_alive_s: float | None) -> Clockwork:
    return Clockwork(active_at=now, keep_alive_until=kept_alive_until(keep_alive_s, now))
