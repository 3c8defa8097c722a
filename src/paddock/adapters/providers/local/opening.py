"""Putting the local provider together: what is found on the host, opened once."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paddock.adapters.egress.authority import Authority
from paddock.adapters.egress.gateway import HostGateway
from paddock.adapters.providers.host.agents import open_to_all
from paddock.adapters.providers.host.cgroups import host_hierarchies
from paddock.adapters.providers.host.fences import Fences
from paddock.adapters.providers.host.init import find_init
from paddock.adapters.providers.host.launch_control import LaunchControl
from paddock.adapters.providers.host.mounts import Bind
from paddock.adapters.providers.host.owner import Locks, Owner, coming_or_going
from paddock.adapters.providers.host.user_namespaces import Ids
from paddock.adapters.providers.local import checkpoint, host_layer, id_ranges, packed, runtime
from paddock.adapters.providers.local.bundle import IdMap
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.layout import Layout, image_of
from paddock.adapters.providers.local.life import Life
from paddock.adapters.providers.local.machine import Machines
from paddock.adapters.providers.local.memory import Memories
from paddock.adapters.providers.local.network import OpenNetwork
from paddock.adapters.providers.local.plan import Image, Plan, check_memory, host_resources
from paddock.adapters.providers.local.records import (
    Keys,
    Records,
    SandboxRecord,
    SnapshotRecord,
)
from paddock.adapters.providers.local.shared_volumes import SharedVolumes
from paddock.adapters.providers.local.storage import Storage, open_storage
from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.templates import SnapshotParts, TemplateStore
from paddock.adapters.providers.local.templates.defaults import Defaults
from paddock.adapters.providers.local.templates.images import Images
from paddock.domain.agent import AGENTS
from paddock.domain.errors import Broken, Conflict, NotFound, Unavailable
from paddock.domain.ids import is_ulid
from paddock.ports.provider import SandboxSpec

GatewayAt = Callable[..., HostGateway]
"""The gateway of the installation whose volatile directory and `authority` these are."""
SetupRunner = Callable[[Path, Path | None, Sequence[str]], Awaitable[Path]]
Progress = Callable[[str, float | None], None]


def silent(_text: str, _fraction: float | None) -> None:
    return None


def unobserved(_step: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Parts:
    """What the provider is made of."""

    config: LocalConfig
    storage: Storage
    templates: TemplateStore
    launch: LaunchControl
    owner: Owner
    life: Life
    idmap: IdMap | None
    memory: checkpoint.Tried
    gateway: HostGateway

    async def plan_template(
        self, spec: SandboxSpec, progress: Progress, set_up: SetupRunner
    ) -> Plan:
        template = self.templates.resolve(spec.template)
        engine = runtime.choose(spec.runtime, template.runtime, self.config.runtime)
        built = await self.templates.ensure(
            template, progress=progress, setup_runner=set_up, most_mib=spec.image_mib
        )
        if not engine.joinable:
            packed.find_python(built.lower, template.name)
        idmap = self._idmap(engine)
        return Plan(
            template=template.name,
            digest=built.digest,
            lower=str(built.lower),
            runtime=engine.name,
            idmap=idmap,
            no_new_privs=self._no_new_privs(spec, engine, template.hardened),
            user=template.user or built.user,
            workdir=template.workdir or built.workdir,
            env=(*built.env, *template.env),
            seed=built.seed,
            limits=None if engine.joinable else spec.resources,
        )

    def _idmap(self, engine: runtime.Runtime) -> IdMap | None:
        """gVisor keeps ids to itself; its files are the host's, unshifted."""
        return self.idmap if engine.joinable else None

    def _no_new_privs(self, spec: SandboxSpec, engine: runtime.Runtime, default: bool) -> bool:
        """Root inside is harmless in a user namespace, and to gVisor's own kernel.

        What a sandbox is made of says how hardened it is, unless the caller says otherwise.
        """
        wish = default if spec.hardened is None else spec.hardened
        return wish or (engine.joinable and self.idmap is None)

    def plan_snapshot(self, record: SnapshotRecord, spec: SandboxSpec) -> Plan:
        engine = runtime.choose(spec.runtime, record.runtime, self.config.runtime)
        self._check_owners(record.id, record.idmap, engine)
        image = None
        if record.memory is not None:
            check_memory(record, spec, host_resources(self.storage.pool), engine.version)
            memory = record.memory
            image = Image(image_of(self.storage.pool, record.id), memory.guest, memory.agents)
        return Plan(
            template=record.template,
            digest=record.digest,
            lower=record.lower,
            runtime=engine.name,
            idmap=record.idmap,
            no_new_privs=self._no_new_privs(spec, engine, record.no_new_privs),
            user=record.user,
            workdir=record.workdir,
            env=tuple(record.env.items()),
            seed=self.storage.pool / "snapshots" / record.id,
            image=image,
        )

    def plan_fork(self, source: SandboxRecord, volume: Path, spec: SandboxSpec) -> Plan:
        engine = runtime.choose(spec.runtime, source.runtime)
        self._check_owners(source.ref, source.idmap, engine)
        return Plan(
            template=source.template,
            digest=source.digest,
            lower=source.lower,
            runtime=engine.name,
            idmap=source.idmap,
            no_new_privs=self._no_new_privs(spec, engine, source.no_new_privs),
            user=source.user,
            workdir=source.workdir,
            env=tuple(source.env.items()),
            seed=volume,
            source=source.ref,
        )

    def _check_owners(self, source: str, idmap: IdMap | None, engine: runtime.Runtime) -> None:
        if (idmap is None) != (self._idmap(engine) is None):
            raise Conflict(
                f"the files of {source} were not made for the runtime {engine.name}: "
                "their owners are shifted differently",
                remediation="use the runtime that the source was made with",
            )

    def plan_setup(self, lower: Path, seed: Path | None) -> Plan:
        engine = runtime.choose(self.config.runtime)
        return Plan(
            template="set-up",
            digest="",
            lower=str(lower),
            runtime=engine.name,
            idmap=self._idmap(engine),
            no_new_privs=False,
            user="root",
            seed=seed,
        )

    def shared_volumes(self) -> SharedVolumes:
        return SharedVolumes(self.storage, self._idmap(runtime.choose(self.config.runtime)))

    async def aclose(self) -> None:
        await self.life.machines.tunnels.aclose()
        await self.gateway.aclose()
        await self.launch.aclose()
        with coming_or_going(self.life.layout.run):
            self.owner.close()
            self.life.layout.forget_if_unused()
        await asyncio.to_thread(self.storage.close)


async def open_parts(
    config: LocalConfig, on_step: Callable[[str], None], gateway_at: GatewayAt, agents: Path | None
) -> Parts:
    _check_root()
    layout = Layout.of(config.data_dir, config.run_root)
    init = find_init(config.init, "local.init")
    runtime.choose(config.runtime)
    async with AsyncExitStack() as undo:
        storage = await asyncio.to_thread(
            open_storage, layout.data, driver=config.storage, pool_size_mib=config.pool_size_mib
        )
        undo.callback(storage.close)
        with explained(layout.data), coming_or_going(layout.run):
            layout.make()
            layout.make_records()
            owner = Owner(layout.owners)
        undo.callback(owner.close)
        launch = LaunchControl(layout.run, [owner.fd], config.fast_cgroups, storage.pool)
        undo.push_async_callback(launch.aclose)
        points = (AGENTS,) if agents else ()
        layers = storage.pool / "host"
        layer, authority = await asyncio.to_thread(_trusted, layers, layout.data, points)
        idmap = await _find_idmap(config, layout, launch, layer)
        volumes = storage.pool / "volumes"
        shown = agents and await asyncio.to_thread(open_to_all, agents)
        machines = Machines(
            layout, host_hierarchies(), launch, volumes, init, layer, on_step, agents=shown
        )
        gateway = gateway_at(layout.run, authority=authority)
        life = _life(config, owner, machines, storage, gateway=gateway)
        templates = _templates(config, life, Images.of(config, gateway.config))
        memory = await checkpoint.tried(config, layout, launch, init)
        undo.pop_all()
        return Parts(config, storage, templates, launch, owner, life, idmap, memory, gateway)


def _check_root() -> None:
    if os.geteuid() != 0:
        raise Unavailable(
            "the local provider needs root, to make namespaces, mounts and control groups",
            remediation="run it with sudo, or use the docker provider as an unprivileged user",
        )


def _life(
    config: LocalConfig,
    owner: Owner,
    machines: Machines,
    storage: Storage,
    *,
    gateway: HostGateway,
) -> Life:
    layout = machines.layout
    records = Records(layout)
    uid = gateway.config.gateway_uid
    return Life(
        layout=layout,
        owner=owner,
        locks=Locks(layout.locks),
        records=records,
        keys=Keys(layout),
        storage=storage,
        machines=machines,
        network=OpenNetwork(layout.run.name, layout.run, config.open_subnet, uid),
        fences=Fences(gateway),
        memories=Memories(machines, records, storage),
        on_step=machines.on_step,
    )


def _templates(config: LocalConfig, life: Life, images: Images) -> TemplateStore:
    return TemplateStore(
        life.storage,
        life.layout.data,
        cache=config.template_cache,
        snapshots=partial(_snapshot_parts, life),
        images=images,
    )


def _snapshot_parts(life: Life, snapshot: str) -> SnapshotParts:
    """What a template made of a snapshot stands upon."""
    record = life.records.read_snapshot(snapshot) if is_ulid(snapshot) else None
    if record is None or not record.ready:
        raise NotFound(f"there is no snapshot {snapshot} on the local provider")
    return SnapshotParts(
        lower=Path(record.lower),
        volume=life.storage.pool / "snapshots" / record.id,
        defaults=Defaults(tuple(record.env.items()), record.user, record.workdir),
    )


def _trusted(layers: Path, data: Path, points: Sequence[str]) -> tuple[Path, Authority]:
    """What sandboxes share with the host, and the authority that they trust beside the host's."""
    authority = Authority.of(data)
    return host_layer.build(layers, authority.certificate, points), authority


async def _find_idmap(
    config: LocalConfig, layout: Layout, launch: LaunchControl, layer: Path
) -> IdMap | None:
    """The id mapping, if this kernel and the pool's file system can do it."""
    if config.user_namespace == "off":
        return None
    idmap = IdMap(first=config.first_id)
    place, namespace = layout.run / "trial-of-ids", layout.run / "trial-of-ids.user"
    place.mkdir(exist_ok=True)
    namespace.touch()
    shown = Bind(str(layer), str(place), stored=True)
    ids = Ids(id_ranges.FIRST, idmap.first, idmap.count, str(namespace))
    try:
        await launch.run(["true"], timeout=10, binds=[shown], ids=ids)
    except Broken:
        return None
    return idmap
