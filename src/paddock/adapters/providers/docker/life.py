"""How a sandbox comes to be and goes, in an order that can be cut off anywhere.

A container is called `…-new` until its guest answers. Whatever a killed process leaves behind
either has that name, or is an image without one, or is a note about a container that is gone.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from paddock.adapters.providers.docker import container as containers
from paddock.adapters.providers.docker import contract, records
from paddock.adapters.providers.docker.container import ContainerSpec
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.images import Base, Images
from paddock.adapters.providers.docker.machine import Machines
from paddock.adapters.providers.docker.names import NEW, Names
from paddock.adapters.providers.docker.network import OpenNetwork
from paddock.adapters.providers.docker.notes import Note
from paddock.adapters.providers.docker.place import Place
from paddock.adapters.providers.docker.records import JOINED, PACKED, Container, SandboxRecord
from paddock.adapters.providers.docker.slips import Slips
from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.host import visible_limits
from paddock.domain.agent import AGENTS
from paddock.domain.egress import NetworkMode
from paddock.domain.errors import Broken, Conflict, NotFound
from paddock.domain.sandbox import Resources, SandboxState
from paddock.ports.provider import Observation, SandboxSpec

_log = logging.getLogger(__name__)
_REMOVED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What every container of this installation gets beside its own resources."""

    nofile: int
    seccomp: str = ""
    nproc: int = 0
    tmp_mib: int = 0
    limit_disk: bool = False
    runtime: str = ""
    agents: Path | None = None
    """What all of them see of this host's agents."""
    usable_cpus: tuple[int, ...] = ()
    """CPUs that containers can be bound to; empty if the engine cannot do so."""
    turns: Iterator[int] = field(default_factory=count)
    """Where the CPUs of the next container begin."""

    def cpus(self, resources: Resources) -> str:
        """Choose the CPUs of a container. Programs size themselves by their number."""
        if not self.usable_cpus:
            return ""
        return visible_limits.listed(
            visible_limits.choose_cpus(resources.cpus, self.usable_cpus, self.turns)
        )

    def mounts(self, runtime: str) -> tuple[dict[str, Any], ...]:
        """gVisor truncates files that it was told to keep as they are."""
        if self.agents is None or runtime == "runsc":
            return ()
        return (containers.bind(str(self.agents), AGENTS),)


@dataclass(frozen=True, slots=True)
class Life:
    """The life of the sandboxes of one installation, as this process directs it."""

    provider: str
    engine: Engine
    names: Names
    place: Place
    images: Images
    network: OpenNetwork
    notes: Slips[Note]
    machines: Machines
    limits: Limits
    on_step: Callable[[str], None]
    copied: set[str] = field(default_factory=set)
    """Sandboxes that the engine has paused for a moment only, to copy their disks."""

    def draft(self, key: str, spec: SandboxSpec, base: Base, fingerprint: str) -> SandboxRecord:
        runtime = spec.runtime or self.limits.runtime
        # No process of the host can enter gVisor's kernel.
        joined = self.machines.joined is not None and runtime != "runsc"
        return SandboxRecord(
            key=key,
            fingerprint=fingerprint,
            defaults=replace(base.defaults, env={**base.defaults.env, **spec.env}),
            labels=dict(spec.labels),
            resources=spec.resources,
            created_at=time.time(),
            guest=JOINED if joined else PACKED,
            maker=self.place.maker,
            token=secrets.token_urlsafe(24),
        )

    async def make(self, record: SandboxRecord, spec: SandboxSpec, base: Base) -> Observation:
        """A whole sandbox under its own name, or nothing. Conflict when another is making it."""
        name = self.names.container(record.key) + NEW
        opened = spec.egress.mode is NetworkMode.OPEN
        runtime = spec.runtime or self.limits.runtime
        order = containers.build(
            ContainerSpec(
                image=base.image,
                labels=records.labels(self.names.installation, records.SANDBOX, record),
                resources=record.resources,
                main=self.machines.guests(record).main(),
                mounts=self.limits.mounts(runtime),
                network=self.names.network if opened else "none",
                nofile=self.limits.nofile,
                seccomp=self.limits.seccomp,
                nproc=self.limits.nproc,
                cpus=self.limits.cpus(record.resources),
                runtime=runtime,
                tmp_mib=self.limits.tmp_mib,
                size_mib=await self._size_mib(record, base),
            )
        )
        try:
            async with self.network.expected() if opened else nullcontext():
                # Not cut off in the middle: what the engine makes unseen, nobody would remove.
                made = await uncancelled(self._order(name, order))
                await self.machines.fencing.keep(made, spec.egress)
                self.on_step("make.container")
                if base.foreign:
                    await contract.fulfil(self.engine, name)
                return await self._finish(name)
        except BaseException:
            await uncancelled(self._remove_half_made(name, record))
            raise

    async def _size_mib(self, record: SandboxRecord, base: Base) -> int:
        """btrfs counts what the sandbox shares with its image as well."""
        if not self.limits.limit_disk:
            return 0
        return record.resources.disk_mib + (await self.images.size_bytes(base.image) >> 20) + 1

    async def _order(self, name: str, order: Mapping[str, Any]) -> str:
        said = await self.engine.post(
            "containers/create", f"make container {name}", order, name=name
        )
        return str(said["Id"])

    async def _finish(self, name: str) -> Observation:
        container = await self.machines.power_on(await self.inspect(name))
        self.on_step("make.running")
        final = name.removesuffix(NEW)
        await self.engine.post(
            f"containers/{container.id}/rename", f"name container {final}", name=final
        )
        self.on_step("make.named")
        return container.observation(self.provider, SandboxState.RUNNING)

    async def _remove_half_made(self, name: str, record: SandboxRecord) -> None:
        """What this very attempt has made under the name, and nothing else."""
        for candidate in (name, name.removesuffix(NEW)):
            with suppress(NotFound):
                container = await self.inspect(candidate)
                if container.record.token == record.token:
                    await self.unmake(container)

    async def unmake(self, container: Container) -> None:
        """Whatever there is of it goes; absent is success."""
        await self._remove(container.id)
        self.on_step("unmake.container")
        await self.machines.forget(container)
        await self.machines.fencing.close(container.id)
        await self.notes.remove(container.id)
        self.on_step("unmake.note")
        await self.images.discard(container.image)
        self.on_step("unmake.image")
        if self.names.network in container.networks:
            await self.network.remove_unused()

    async def _remove(self, container: str) -> None:
        """A second removal at the same time is refused by the engine; wait for the first."""
        until = time.monotonic() + _REMOVED_WITHIN_S
        while True:
            try:
                await self.engine.delete(
                    f"containers/{container}", f"remove container {container[:12]}", force=1, v=1
                )
                return
            except NotFound:
                return
            except Conflict:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.05)

    async def inspect(self, container: str) -> Container:
        """By id or name; NotFound unless it is a sandbox of this installation."""
        return await records.find(self.engine, container, self.names.installation)

    async def current(self, ref: str) -> Container:
        """A finished sandbox, as the engine sees it."""
        container = await self.inspect(ref)
        if container.name.endswith(NEW):
            raise NotFound(f"sandbox {ref[:12]} is not finished yet")
        return container

    @asynccontextmanager
    async def held(self, ref: str) -> AsyncIterator[Container]:
        """The sandbox as it is now, with its lock; one that has lost its guest is ended first."""
        async with self.place.locks.hold(ref):
            container = await self.current(ref)
            if self.lost(container):
                await self.machines.end_without_guest(container)
                container = await self.current(ref)
            yield container

    def is_ours(self, container: Container) -> bool:
        """Whole, and with its guest and its fence, if it has any, in this process's reach."""
        return not container.name.endswith(NEW) and self.place.shares(container.record.maker)

    def lost(self, container: Container) -> bool:
        running = self.state(container) is SandboxState.RUNNING
        return running and not self.machines.has_guest(container)

    def state(self, container: Container) -> SandboxState:
        if container.state is SandboxState.PAUSED and container.id in self.copied:
            return SandboxState.RUNNING
        return container.state

    async def describe(self, container: Container) -> Observation:
        state = self.state(container)
        if state is not SandboxState.STOPPED:
            return container.observation(self.provider, state)
        if self.machines.fencing.serves(container.id):  # it ended by itself
            await self.machines.fencing.leave(container.id)
        reason, detail = await self.machines.why_ended(container)
        return container.observation(self.provider, state, reason, detail)

    async def all(self) -> list[Container]:
        """Every container of this installation, finished or not."""
        seen = await self.engine.get(
            "containers/json", "list its containers", all=1, filters=self.names.filter
        )
        found = []
        for one in seen:
            try:
                found.append(await self.inspect(one["Id"]))
            except NotFound:
                continue  # it went while we were looking
            except Broken as error:
                _log.error("container left alone id=%s error=%s", one["Id"][:12], error)
        return found
