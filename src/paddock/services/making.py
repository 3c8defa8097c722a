"""How a sandbox comes into being: once per key, and wholly or not at all."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Conflict, NotFound, PaddockError, known
from paddock.domain.lifetime import Lifetime
from paddock.domain.quota import usage_of
from paddock.domain.reason import Reason
from paddock.domain.records import (
    INSTALLATION_LABEL,
    SANDBOX_LABEL,
    SandboxRecord,
    event_of,
    moved,
    taken,
)
from paddock.domain.sandbox import SandboxState
from paddock.domain.snapshot import SnapshotRef
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.provider import Observation, Provider, Ref, SandboxSpec
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services import begun, quarantine_cases
from paddock.services.admission import Admission
from paddock.services.begun import PATIENT, Patience
from paddock.services.build_records import ready_build
from paddock.services.changes import Changes
from paddock.services.egress_changes import described
from paddock.services.fallback import Fallback, Made, Route
from paddock.services.identity import holder, on_record
from paddock.services.mounting import mounted
from paddock.services.networks import Modes, Networks, fit
from paddock.services.once import fingerprint_of
from paddock.services.providers import Providers
from paddock.services.quotas import check_quota
from paddock.services.sandbox_plan import forked, of_build, of_snapshot, planned
from paddock.services.team_images import Prepare, TeamImages
from paddock.services.template_builds import TemplateBuilds
from paddock.services.wishes import Wish, bound

_log = logging.getLogger(__name__)
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
        builds: TemplateBuilds,
        admission: Admission | None = None,
    ) -> None:
        self.fallback = Fallback(store, clock, providers, changes=changes)
        self.images = TeamImages(store, clock, providers)
        self._store = store
        self._changes = changes
        self._providers = providers
        self._clock = clock
        self._installation = installation
        self._builds = builds
        self._admission = admission
        self._underway: dict[str, asyncio.Task[SandboxRecord]] = {}
        self.configure: Configure = _nothing_to_configure
        self.wakings: list[Configure] = []
        self.starts: list[Configure] = []
        """Start what a template says, in a machine that has just begun to run."""
        self.concerns: Callable[[SandboxRecord], bool] = lambda _sandbox: False
        """Whether it is to be configured at all."""
        self.networks: Networks = Modes()
        self.lifetime = Lifetime()
        """What a wish does not say; may be changed at any time."""

    async def create(
        self, principal: Principal, wish: Wish, key: str = "", *, patience: Patience = PATIENT
    ) -> SandboxRecord:
        """A running sandbox, or one in `creating` if `patience` says so. The same key gives the
        same one, also after a restart; so does the same identity, in whatever state that one is.
        TimedOut while another caller makes it.
        """
        principal.require(Scope.SANDBOXES_WRITE)
        request = fingerprint_of("create", wish)
        wish = await self._resolved(principal, wish)
        record = await self._plan(principal, wish)
        return await self._enter(principal, record, key, (request, wish), patience=patience)

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
        record = forked(source, wish, now=self._clock.wall())
        request = fingerprint_of(f"fork {source.id}", wish)
        return await self._enter(principal, record, key, (request, wish))

    async def resume_making(self, record: SandboxRecord, principal: Principal) -> SandboxRecord:
        """Go on with a creation that a restart interrupted."""
        if (task := self._underway.get(record.id)) is not None:
            return await begun.awaited(task, record, PATIENT)
        return await begun.awaited(
            self._begun(record, principal, None), record, Patience(wait_s=None)
        )

    def is_making(self, sandbox_id: str) -> bool:
        return sandbox_id in self._underway

    async def cancel(self, record: SandboxRecord, principal: Principal, why: str) -> None:
        """Cancel the creation in this process and undo it. Waiting callers get Conflict."""
        if (task := self._underway.get(record.id)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            entry = self._changes.entry(principal, record, "sandbox.delete", {"cancelled": why})
            error = Conflict(
                f"sandbox {record.name} was not created: {why}", remediation="create another"
            )
            await self._give_up(record, principal, error, reason=Reason.CANCELLED, entry=entry)

    async def aclose(self) -> None:
        """Leave what is half made to the next start, which finds it by its key."""
        tasks = list(self._underway.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _resolved(self, principal: Principal, wish: Wish) -> Wish:
        """Replace the name of a team's template by its snapshot. A team's template takes precedence
        over one of the installation."""
        if not wish.template or wish.snapshot or Scope.TEMPLATES_READ not in principal.scopes:
            return wish
        named = (principal.team_id, wish.template)
        build = await self._store.read(lambda tx: ready_build(tx, *named))
        return wish if build is None else of_build(wish, build)

    async def _plan(self, principal: Principal, wish: Wish) -> SandboxRecord:
        provider = self._providers.default
        record = planned(principal.team_id, wish, self.lifetime, provider, now=self._clock.wall())
        if wish.snapshot:
            named = (record.team_id, wish.snapshot)
            found = await self._store.read(lambda tx: tx.snapshots.get(*named))
            return of_snapshot(principal, record, wish, taken(found, wish.snapshot))
        self.fallback.check(record.provider, bound(wish))
        return record

    async def _enter(
        self,
        principal: Principal,
        record: SandboxRecord,
        key: str,
        request: tuple[str, Wish],
        *,
        patience: Patience = PATIENT,
    ) -> SandboxRecord:
        """Write it down first, so that a restart finds what was begun."""
        fingerprint, wish = request
        route = await self._route(principal, record, wish)
        record = self.fallback.planned(replace(record, task=wish.task, holders=()), route)

        def enter(tx: Transaction) -> SandboxRecord:
            if wish.identity and not wish.another:
                holding = holder(tx, record.team_id, wish.identity)
                if holding is not None:
                    return holding
            if key:
                what = {"fingerprint": fingerprint, "object_id": record.id}
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

        return await self._admitted(enter, principal, patience, route)

    async def _admitted(
        self,
        enter: Callable[[Transaction], SandboxRecord],
        principal: Principal,
        patience: Patience,
        route: Route,
    ) -> SandboxRecord:
        """Reserve memory, write the record and wait for the creation as long as the caller does."""
        with ExitStack() as stack:
            if self._admission is not None:
                stack.enter_context(self._admission.reserved())
            entered = await self._store.write(enter)
            if entered.state is not SandboxState.CREATING:
                return entered
            task = self._underway.get(entered.id)
            if task is not None:
                return await begun.awaited(task, entered, patience)
            task = self._begun(entered, principal, route)
            # The caller may leave before the creation ends.
            task.add_done_callback(partial(_release, stack.pop_all()))
        return await begun.awaited(task, entered, replace(patience, wait_s=None))

    async def _route(self, principal: Principal, record: SandboxRecord, wish: Wish) -> Route:
        def replan(at: SandboxRecord) -> SandboxRecord:
            fresh = replace(at, egress=record.egress)
            return replace(at, egress=self.networks.chosen(principal, fresh, wish.egress))

        return await self.fallback.route(bound(wish, record.parent_id), replan)

    def _begun(
        self, record: SandboxRecord, principal: Principal, route: Route | None
    ) -> asyncio.Task[SandboxRecord]:
        task = asyncio.create_task(self._make(record, principal, route), name=f"make {record.id}")
        self._underway[record.id] = task
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[SandboxRecord]) -> None:
        self._underway = {key: each for key, each in self._underway.items() if each is not task}
        if not task.cancelled():
            task.exception()  # it was logged; the caller may be gone

    async def _make(
        self, record: SandboxRecord, principal: Principal, route: Route | None
    ) -> SandboxRecord:
        async with self._changes.alone(record.id):
            try:
                there = partial(self._there, principal=principal)
                record, spec, seen = await self.fallback.make(record, route, there, principal)
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

    async def _there(self, record: SandboxRecord, principal: Principal) -> Made:
        provider, spec = self._providers.get(record.provider), await self._spec(record)
        build = partial(self._builds.prepare, record, principal)
        return record, spec, await self._ask(provider, record, spec, build)

    async def wake(self, sandbox: SandboxRecord, *, is_boot: bool) -> None:
        """What was over when it fell asleep stays so; what was set meanwhile, it is given. Start
        commands run after a boot only: a resumed sandbox still has their processes."""
        for first in (*self.wakings, self.configure, *(self.starts if is_boot else ())):
            await first(sandbox)

    async def begin(self, provider: Provider, record: SandboxRecord, seen: Observation) -> None:
        """Destroy the sandbox if its app configuration or its start command fails."""
        running = replace(record, state=SandboxState.RUNNING, ref=seen.ref.id)
        try:
            if self.concerns(record):
                await self.configure(running)
            for start in self.starts:
                await start(running)
        except BaseException:  # also when the creation is cancelled
            await asyncio.shield(provider.destroy(seen.ref))
            raise

    async def _ask(
        self, provider: Provider, record: SandboxRecord, spec: SandboxSpec, build: Prepare
    ) -> Observation:
        if not record.parent_id:
            return await self.images.create(provider, record, spec, build)
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
        self,
        record: SandboxRecord,
        principal: Principal,
        error: PaddockError,
        *,
        reason: Reason = Reason.CRASHED,
        entry: AuditEntry | None = None,
    ) -> None:
        """The provider left nothing behind, so neither do we: only the events tell of it (L7)."""
        _log.warning("sandbox could not be made", extra={"id": record.id, "error": error.message})
        now, detail = self._clock.wall(), error.message

        def undo(tx: Transaction) -> None:
            current = tx.sandboxes.get(ANY_TEAM, record.id)
            if current is None or current.state is not SandboxState.CREATING:
                return
            for state in (SandboxState.FAILED, SandboxState.DELETING, SandboxState.DELETED):
                current = moved(current, state, now, reason=reason, detail=detail)
                event = event_of(current, principal.actor)
                if state is SandboxState.FAILED:  # for who follows the creation by its events
                    event = replace(event, data={**event.data, "error": error.as_dict()})
                tx.events.append([event])
            tx.sandboxes.replace(current)
            if entry is not None:
                tx.audit.append([entry])
            tx.keys.release(record.team_id, record.id)

        await self._store.write(undo)
        self._changes.forget(record.id)


def _release(reserved: ExitStack, _task: asyncio.Task[SandboxRecord]) -> None:
    reserved.close()


async def _nothing_to_configure(_sandbox: SandboxRecord) -> None:
    return
