"""The local provider: sandboxes on this host."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.egress.gateway import HostGateway
from paddock.adapters.providers.fingerprint import fingerprint
from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.local import checkpoint, checks, packing, reconcile
from paddock.adapters.providers.local.abilities import CONTAINER, Found, abilities_of
from paddock.adapters.providers.local.archives import Archives
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.disks import Disks
from paddock.adapters.providers.local.life import Life, check_on_disk, not_found
from paddock.adapters.providers.local.networks import fit_network
from paddock.adapters.providers.local.opening import Parts, Progress, open_parts, silent, unobserved
from paddock.adapters.providers.local.plan import Plan, check_network, check_source, granted
from paddock.adapters.providers.local.records import SandboxRecord
from paddock.adapters.providers.local.setup import run_setup
from paddock.adapters.providers.local.shared_volumes import check_volumes
from paddock.adapters.providers.local.snapshots import Snapshots
from paddock.adapters.providers.local.storage.programs import stoppable
from paddock.adapters.providers.local.templates import TemplateStore
from paddock.adapters.providers.local.usage import measured
from paddock.adapters.providers.local.warm import WarmSandboxes
from paddock.adapters.providers.local.watch import watch
from paddock.domain.egress import OPEN, EgressPolicy, NetworkMode
from paddock.domain.errors import Broken, Conflict, NotFound, Unsupported
from paddock.domain.guest import GuestAddress
from paddock.domain.ids import is_ulid
from paddock.domain.ignoring import check_whole
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState, transition
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.ports.provider import (
    Capabilities,
    Endpoint,
    Health,
    Observation,
    OpenDisk,
    Ref,
    SandboxSpec,
    Usage,
)
from paddock.ports.volumes import VolumeFiles


class LocalProvider:
    """Sandboxes on this host. Made by `LocalProvider.open`, ended by `aclose`."""

    name = "local"
    CAPABILITIES = CONTAINER
    """With crun or runc, on btrfs. What the host at hand allows is in `capabilities`."""

    def __init__(self, config: LocalConfig, parts: Parts, progress: Progress) -> None:
        self._config = config
        self._parts = parts
        self._life: Life = parts.life
        self._progress = progress
        self._watch: asyncio.Task[None] | None = None
        self._snapshots = Snapshots(self._life, self.name)
        self._archives = Archives(self._life)
        self._disks = Disks(self._life)
        self._can_archive = packing.available()
        self.warm = WarmSandboxes(self._life)
        self.shared = parts.shared_volumes()

    @classmethod
    async def open(
        cls,
        config: LocalConfig,
        *,
        progress: Progress = silent,
        on_step: Callable[[str], None] = unobserved,
        egress: EgressConfig | None = None,
        closed_ports: frozenset[int] = frozenset(),
        agents: Path | None = None,
    ) -> "LocalProvider":
        """Find what is there, finish or undo what others left, and be ready.

        `on_step` is told every step once it is done; no sandbox reaches this host's `closed_ports`,
        and all see the directory `agents`.
        """
        gateway = partial(HostGateway, config=egress or EgressConfig(), closed_ports=closed_ports)
        parts = await open_parts(config, on_step, gateway, agents)
        provider = cls(config, parts, progress)
        try:
            await reconcile.reconcile(provider._life)
            provider._watch = asyncio.create_task(watch(parts.life))
            for template, size in config.warm.items():
                await provider.keep_warm(template, size)
        except BaseException:
            await uncancelled(provider.aclose())
            raise
        return provider

    @property
    def capabilities(self) -> Capabilities:
        agents = self._life.machines.agents is not None
        found = Found(self._parts.storage.enforces_disk_limit, self._parts.memory.works, agents)
        return abilities_of(self._config.runtime, found, archive=self._can_archive)

    @property
    def gateway(self) -> HostGateway:
        """What its sandboxes go through under an allowlist."""
        return self._parts.gateway

    @property
    def templates(self) -> TemplateStore:
        return self._parts.templates

    async def check(self) -> Health:
        return await checks.check(self._config, self._parts)

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        if (existing := await self._existing(key, spec)) is not None:
            return existing
        check_source(spec)
        resources = granted(spec.resources, self._parts.storage.pool)
        plan = await self._plan(spec)
        if spec.egress.mode is not NetworkMode.NONE:
            check_network(plan.runtime)
        draft = self._draft(plan, key, spec, resources)
        # What waits runs already, and nothing is mounted in it any more.
        if plan.poolable and not spec.volumes and (waiting := self.warm.take(plan)) is not None:
            if (claimed := await self.warm.claim(waiting, draft, plan)) is not None:
                return claimed.observation(self.name)
            return await self._existing_or_conflict(key, spec)
        return await self._make_new(draft, plan, spec)

    async def _make_new(self, draft: SandboxRecord, plan: Plan, spec: SandboxSpec) -> Observation:
        key = draft.key
        async with self._life.locks.hold(draft.ref):
            record = self._life.records.write(draft)
            self._life.on_step("create.noted")
            if self._life.keys.claim("sandbox", key, record.ref) == record.ref:
                self._life.on_step("create.claimed")
                record = await self._life.make(record, plan)
                return record.observation(self.name)
            self._life.records.remove(record.ref)
        return await self._existing_or_conflict(key, spec, plan.source)

    def _draft(
        self, plan: Plan, key: str, spec: SandboxSpec, resources: Resources
    ) -> SandboxRecord:
        check_volumes(self.shared, spec, plan)
        return replace(
            self._life.draft(plan, resources),
            key=key,
            fingerprint=fingerprint(spec, plan.source),
            labels=dict(spec.labels),
            env={**dict(plan.env), **spec.env},
            egress=spec.egress,
            volumes=spec.volumes,
        )

    async def _existing(self, key: str, spec: SandboxSpec, source: str = "") -> Observation | None:
        """The sandbox that was made with this key, once it is whole."""
        while (ref := self._life.keys.holder("sandbox", key)) is not None:
            async with self._life.locks.hold(ref):
                record = self._life.records.read(ref)
                if record is None:
                    self._life.keys.release("sandbox", key, ref)
                elif record.state in (SandboxState.CREATING, SandboxState.DELETING):
                    # The lock is ours, so whoever was at it is gone.
                    await uncancelled(self._life.unmake(record))
                elif record.fingerprint != fingerprint(spec, source):
                    raise Conflict(
                        f"the key {key!r} already belongs to sandbox {ref}, made from another spec",
                        remediation="ask again with the same spec, or choose another key",
                    )
                else:
                    return (await self._life.refresh(record)).observation(self.name)
        return None

    async def _existing_or_conflict(
        self, key: str, spec: SandboxSpec, source: str = ""
    ) -> Observation:
        if (existing := await self._existing(key, spec, source)) is not None:
            return existing
        raise Conflict(f"another request with the key {key!r} failed just now", remediation="retry")

    def check_spec(self, spec: SandboxSpec) -> None:
        granted(spec.resources, self._parts.storage.pool)
        if spec.template:
            self._parts.templates.resolve(spec.template)

    async def _plan(self, spec: SandboxSpec) -> Plan:
        if spec.snapshot is not None:
            return self._parts.plan_snapshot(self._snapshots.get(spec.snapshot), spec)
        return await self._parts.plan_template(spec, self._progress, self._set_up)

    async def _set_up(self, lower: Path, seed: Path | None, commands: Sequence[str]) -> Path:
        plan = self._parts.plan_setup(lower, seed)
        return await run_setup(self._life, plan, commands, self._progress, OPEN)

    async def prepare(self, template: str, image_mib: int | None = None) -> None:
        """Build a template unless it is built: it may take minutes, which no create has."""
        await self._plan(SandboxSpec(template=template, image_mib=image_mib))

    async def keep_warm(self, template: str, size: int) -> None:
        """Keep this many sandboxes of a template ready; changes take effect at once."""
        self.warm.assign(template, await self._plan(SandboxSpec(template=template)), size)

    async def warmed(self) -> None:
        """Wait until the pools are full."""
        await self.warm.settle()

    async def observe(self, ref: Ref) -> Observation:
        record = self._life.records.read(self._id(ref))
        if record is None or record.pooled:
            raise not_found(ref.id)
        if record.state in (SandboxState.CREATING, SandboxState.DELETING):
            return record.observation(self.name)
        if record.machine is not None and not record.machine.alive():
            async with self._life.held(ref.id) as record:
                return record.observation(self.name)
        return record.observation(self.name)

    async def find(self, labels: Mapping[str, str]) -> AsyncIterator[Observation]:
        for record in self._life.records.all():
            if record.pooled or any(record.labels.get(k) != v for k, v in labels.items()):
                continue
            try:
                yield await self.observe(Ref(self.name, record.ref))
            except NotFound:
                continue

    async def pause(self, ref: Ref) -> Observation:
        async with self._life.held(self._id(ref)) as record:
            if record.state is not SandboxState.PAUSED:
                paused = self._becoming(record, SandboxState.PAUSED)
                cgroup = self._life.machines.cgroup(ref.id)
                try:
                    await uncancelled(asyncio.to_thread(cgroup.freeze))
                    record = self._life.records.write(paused)
                except BaseException:
                    cgroup.thaw()
                    raise
            return record.observation(self.name)

    async def resume(self, ref: Ref) -> Observation:
        async with self._life.held(self._id(ref)) as record:
            if record.state is SandboxState.PAUSED:
                await self._disks.end(ref.id)
                self._life.machines.cgroup(ref.id).thaw()
                record = self._life.become(record, SandboxState.RUNNING)
            elif record.state is not SandboxState.RUNNING:
                self._becoming(record, SandboxState.PAUSED)
            return record.observation(self.name)

    async def stop(self, ref: Ref, reason: Reason = Reason.USER) -> Observation:
        async with self._life.held(self._id(ref)) as record:
            if record.state is not SandboxState.STOPPED:
                self._becoming(check_on_disk(record), SandboxState.STOPPED)
                if record.state is SandboxState.RUNNING:
                    await self._life.ask_to_finish(record)
                record = await uncancelled(self._life.power_off(record, reason))
            return record.observation(self.name)

    async def start(self, ref: Ref) -> Observation:
        async with self._life.held(self._id(ref)) as record:
            if record.state is not SandboxState.RUNNING:
                record = await self._start(record)
            return record.observation(self.name)

    async def _start(self, record: SandboxRecord) -> SandboxRecord:
        self._becoming(record, SandboxState.RUNNING)
        if record.state is SandboxState.PAUSED:
            raise Conflict(f"sandbox {record.ref} is paused", remediation="resume it instead")
        await self._disks.end(record.ref)
        if record.state is SandboxState.ARCHIVED:
            record = await self._archives.bring_back(record)
        try:
            return await self._life.power_on(record)
        except BaseException:
            await uncancelled(self._life.power_off(record, Reason.CRASHED, "did not start"))
            raise

    async def archive(self, ref: Ref) -> Observation:
        if not self._can_archive:
            raise packing.refusal()
        async with self._life.held(self._id(ref)) as record:
            await self._disks.end(ref.id)
            return (await self._archives.put_away(record)).observation(self.name)

    async def open_disk(self, ref: Ref) -> OpenDisk:
        if not self.capabilities.sleeping_disk:
            raise Unsupported(
                f"disks are not shown while sandboxes sleep on {self._config.runtime}",
                remediation="start the sandbox first",
            )
        async with self._life.held(self._id(ref)) as record:
            return await self._disks.open(record)

    def _becoming(self, record: SandboxRecord, target: SandboxState) -> SandboxRecord:
        return replace(record, state=transition(record.ref, record.state, target))

    async def destroy(self, ref: Ref) -> None:
        async with self._life.locks.hold(self._id(ref)):
            await self._disks.end(ref.id)
            try:
                record = self._life.records.read(ref.id)
            except Broken:
                await stoppable(reconcile.remove_unread(self._life, ref.id))
                return
            if record is not None:
                await stoppable(self._life.unmake(record))

    async def renew(self, ref: Ref, until: float) -> Observation:
        raise Unsupported(
            "the local provider never ends a sandbox by itself, so there is nothing to renew"
        )

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        if memory and not self._parts.memory.works:
            raise checkpoint.refusal(self._parts.memory)
        if memory:
            check_whole(ignore)
        return await self._snapshots.take(self._id(ref), key, memory=memory, ignore=ignore)

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        for snapshot in self._snapshots.all():
            yield snapshot

    async def delete_snapshot(self, ref: SnapshotRef) -> None:
        await self._snapshots.delete(ref)

    async def fork(self, ref: Ref, key: str, spec: SandboxSpec) -> Observation:
        if (existing := await self._existing(key, spec, ref.id)) is not None:
            return existing
        resources = granted(spec.resources, self._parts.storage.pool)
        async with self._life.held(self._id(ref)) as source:
            check_on_disk(source)
            plan = self._parts.plan_fork(source, self._life.volume(source.ref), spec)
        return await self._make_new(self._draft(plan, key, spec, resources), plan, spec)

    async def create_volume(self, volume: str, size_mib: int | None) -> None:
        await self.shared.create(volume, size_mib)

    async def delete_volume(self, volume: str) -> None:
        await self.shared.delete(volume)

    async def open_volume(self, volume: str) -> VolumeFiles:
        return await self.shared.open(volume)

    async def guest(self, ref: Ref) -> GuestAddress:
        observed = await self.observe(ref)
        record = self._life.records.read(ref.id)
        if record is None or observed.state is not SandboxState.RUNNING:
            raise Conflict(
                f"sandbox {ref.id} is {observed.state}; only a running one can be talked to",
                remediation="resume or start it first",
            )
        return self._life.machines.address(record)

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        await self.guest(ref)
        record = self._life.records.read(ref.id)
        if record is None or record.machine is None:
            raise not_found(ref.id)
        if record.runtime == "runsc":
            return Endpoint(port=port, socket=await self._life.machines.way_to(record, port))
        init = record.machine.init
        return Endpoint(port=port, netns_pid=init.pid, netns_started=init.started)

    async def set_egress(self, ref: Ref, policy: EgressPolicy) -> None:
        async with self._life.held(self._id(ref)) as record:
            check_network(record.runtime)
            record = self._life.records.change(record, egress=policy)
            if record.machine is not None:
                await fit_network(self._life, record)

    async def usage(self, ref: Ref) -> Usage:
        await self.observe(ref)
        disk = await asyncio.to_thread(self._archives.disk_bytes, ref.id)
        return measured(self._life.machines.cgroup(ref.id), disk)

    async def aclose(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        try:
            await self._disks.aclose()
            await self.warm.aclose()
            reconcile.forget_empty_groups(self._life)
        finally:
            await self._parts.aclose()

    def _id(self, ref: Ref) -> str:
        if ref.provider != self.name or not is_ulid(ref.id):
            raise not_found(f"{ref.provider}/{ref.id}")
        return ref.id
