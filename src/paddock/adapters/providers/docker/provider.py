"""The Docker provider: sandboxes as containers of an engine."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from paddock.adapters.egress.authority import Authority
from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.egress.gateway import HostGateway
from paddock.adapters.providers.docker import checks, reconcile, usage
from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.docker.images import Base, ImageSource, no_templates
from paddock.adapters.providers.docker.joined import first_process
from paddock.adapters.providers.docker.life import Life
from paddock.adapters.providers.docker.names import NEW, PROVIDER
from paddock.adapters.providers.docker.networks import fit_network
from paddock.adapters.providers.docker.opening import Parts, open_parts
from paddock.adapters.providers.docker.records import Container
from paddock.adapters.providers.docker.watch import watch
from paddock.adapters.providers.fingerprint import fingerprint
from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.host.owner import Turns
from paddock.adapters.providers.without_volumes import check_no_volumes, refuse_volumes
from paddock.domain.egress import EgressPolicy
from paddock.domain.errors import Conflict, InvalidRequest, NotFound, Unsupported
from paddock.domain.guest import GuestAddress
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState, transition
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.ports.provider import (
    Capabilities,
    Endpoint,
    Health,
    Isolation,
    Observation,
    OpenDisk,
    PauseKind,
    Ref,
    SandboxSpec,
    Usage,
)
from paddock.ports.volumes import VolumeFiles

_ID = re.compile(r"[0-9a-f]{64}")
_OTHERS_S = 60.0
"""How long to wait for another control plane that makes a sandbox with the same key."""
_NAME_TAKEN_S = 10.0
"""How long a name may be taken by something that cannot be seen."""


def _unobserved(_step: str) -> None:
    return None


class DockerProvider:
    """Sandboxes as containers. Made by `DockerProvider.open`, ended by `aclose`."""

    name = PROVIDER
    CAPABILITIES = Capabilities(
        isolation=Isolation.CONTAINER,
        pause=PauseKind.MEMORY,
        stop=True,
        snapshot=True,
        fork=True,
        egress=True,
        live_egress=True,
        allowlist=True,
        any_image=True,
        late_ports=True,
        metrics=True,
        agents=True,
    )
    """With Docker and its usual storage. What the engine at hand allows is in `capabilities`."""

    def __init__(self, config: DockerConfig, parts: Parts) -> None:
        self._config = config
        self._parts = parts
        self._life: Life = parts.life
        self._turns = Turns()
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        config: DockerConfig,
        image_source: ImageSource = no_templates,
        *,
        egress: EgressConfig | None = None,
        closed_ports: frozenset[int] = frozenset(),
        agents: Path | None = None,
        on_step: Callable[[str], None] = _unobserved,
    ) -> "DockerProvider":
        """Find the engine, undo what others left half done, and be ready.

        `image_source` turns a template's name into what can be imported. `on_step` is told the name
        of every step once it is done. No sandbox reaches this host's `closed_ports`; all see the
        directory `agents`, where the engine is on this host.
        """

        def gateway_at(place: Path, authority: Authority) -> HostGateway:
            return HostGateway(place, egress or EgressConfig(), authority, closed_ports)

        parts = await open_parts(config, image_source, on_step, gateway_at, agents=agents)
        provider = cls(config, parts)
        try:
            parts.check_runtime(config.runtime)
            await reconcile.reconcile(parts.life)
        except BaseException:
            await parts.aclose()
            raise
        provider._watching = asyncio.create_task(watch(parts.life, config.disk_watch_s))
        return provider

    @property
    def capabilities(self) -> Capabilities:
        strong = self._config.runtime == "runsc"
        return replace(
            self.CAPABILITIES,
            isolation=Isolation.USER_KERNEL if strong else Isolation.CONTAINER,
            live_egress=not self._parts.engine.about.podman,
            allowlist=not strong and not self._life.machines.fencing.why_not,
            disk_limit=self._life.limits.limit_disk,
            agents=bool(self._life.limits.mounts(self._config.runtime)),
        )

    @property
    def gateway(self) -> HostGateway | None:
        """What its sandboxes' allowlists are enforced by, where they can have one."""
        return self._parts.gateway

    async def check(self) -> Health:
        return await checks.check(self._config)

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        async with self._turns.take(key):
            if (existing := await self._existing(key, spec)) is not None:
                return existing
            self._check(spec)
            if bool(spec.template) == (spec.snapshot is not None):
                raise InvalidRequest(
                    "a sandbox starts from a template or a snapshot, not from both or neither",
                    remediation="give exactly one of template and snapshot",
                )
            return await self._make(key, spec, await self._base(spec))

    def check_spec(self, spec: SandboxSpec) -> None:
        """Whether there is such a template only the engine knows: it may be an image."""
        spec.resources.check_within(self._parts.most())

    def _check(self, spec: SandboxSpec) -> None:
        joinable = (spec.runtime or self._config.runtime) != "runsc"
        self._life.machines.fencing.check(spec.egress, joined=joinable)
        check_no_volumes(self.name, spec)
        self.check_spec(spec)
        self._parts.check_runtime(spec.runtime)

    async def _base(self, spec: SandboxSpec) -> Base:
        if spec.snapshot is not None:
            return await self._parts.snapshots.base(spec.snapshot)
        return await self._life.images.template(spec.template)

    async def _make(self, key: str, spec: SandboxSpec, base: Base, source: str = "") -> Observation:
        record = self._life.draft(key, spec, base, fingerprint(spec, source))
        until = time.monotonic() + _NAME_TAKEN_S
        while True:
            try:
                return await self._life.make(record, spec, base)
            except Conflict:
                # The engine arbitrates: another control plane has the name, though what it makes
                # may not be seen yet.
                if (existing := await self._existing(key, spec, source)) is not None:
                    return existing
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.05)

    async def _existing(self, key: str, spec: SandboxSpec, source: str = "") -> Observation | None:
        """The sandbox that was made with this key, once it is whole."""
        name = self._life.names.container(key)
        until = time.monotonic() + _OTHERS_S
        while True:
            if (container := await self._find(name)) is not None:
                return await self._described(container, key, fingerprint(spec, source))
            half_made = await self._find(name + NEW)
            if half_made is None:
                # It may have got its name between the two looks.
                container = await self._find(name)
                if container is None:
                    return None
                return await self._described(container, key, fingerprint(spec, source))
            record = half_made.record
            if not self._life.place.is_alive(record.maker, record.created_at):
                await uncancelled(self._life.unmake(half_made))
            elif time.monotonic() > until:
                raise Conflict(
                    f"another control plane is still making the sandbox with the key {key!r}",
                    remediation="retry later",
                )
            else:
                await asyncio.sleep(0.05)

    async def _find(self, name: str) -> Container | None:
        try:
            return await self._life.inspect(name)
        except NotFound:
            return None

    async def _described(self, container: Container, key: str, wanted: str) -> Observation:
        if container.record.fingerprint != wanted:
            raise Conflict(
                f"the key {key!r} already belongs to sandbox {container.id[:12]}, made from "
                "another spec",
                remediation="ask again with the same spec, or choose another key",
            )
        return await self._observed(container)

    async def _observed(self, container: Container) -> Observation:
        if not self._life.lost(container):
            return await self._life.describe(container)
        async with self._life.held(container.id) as settled:
            return await self._life.describe(settled)

    async def observe(self, ref: Ref) -> Observation:
        return await self._observed(await self._life.current(self._id(ref)))

    async def find(self, labels: Mapping[str, str]) -> AsyncIterator[Observation]:
        for container in await self._life.all():
            carried = container.record.labels
            if container.name.endswith(NEW) or container.state is SandboxState.DELETING:
                continue
            if all(carried.get(name) == value for name, value in labels.items()):
                with contextlib.suppress(NotFound):
                    yield await self._observed(container)

    async def pause(self, ref: Ref) -> Observation:
        async with self._life.held(self._id(ref)) as container:
            if container.state is not SandboxState.PAUSED:
                transition(ref.id, container.state, SandboxState.PAUSED)
                await self._life.machines.hold_still(container)
            return container.observation(self.name, SandboxState.PAUSED)

    async def resume(self, ref: Ref) -> Observation:
        async with self._life.held(self._id(ref)) as container:
            if container.state is SandboxState.PAUSED:
                await self._life.machines.let_go_on(container)
            elif container.state is not SandboxState.RUNNING:
                transition(ref.id, container.state, SandboxState.PAUSED)
            return container.observation(self.name, SandboxState.RUNNING)

    async def stop(self, ref: Ref, reason: Reason = Reason.USER) -> Observation:
        async with self._life.held(self._id(ref)) as container:
            if container.state is not SandboxState.STOPPED:
                transition(ref.id, container.state, SandboxState.STOPPED)
                if container.state is SandboxState.RUNNING:
                    await self._life.machines.ask_to_finish(container)
                await uncancelled(self._life.machines.power_off(container, reason))
            return await self._life.describe(await self._life.current(ref.id))

    async def start(self, ref: Ref) -> Observation:
        async with self._life.held(self._id(ref)) as container:
            if container.state is SandboxState.RUNNING:
                return container.observation(self.name, SandboxState.RUNNING)
            if container.state is SandboxState.PAUSED:
                raise Conflict(f"sandbox {ref.id[:12]} is paused", remediation="resume it instead")
            transition(ref.id, container.state, SandboxState.RUNNING)
            try:
                if self._life.names.network in container.networks:
                    await self._life.network.attach(container)
                container = await self._life.machines.power_on(container)
            except BaseException:
                off = self._life.machines.power_off(container, Reason.CRASHED, "did not start")
                await uncancelled(off)
                raise
            await self._life.notes.remove(container.id)
            return container.observation(self.name, SandboxState.RUNNING)

    async def archive(self, ref: Ref) -> Observation:
        raise Unsupported(
            "the docker provider does not support archive: an engine gives back no disk of a "
            "container without giving up the container itself",
            remediation="keep it stopped, or snapshot it and destroy it",
        )

    async def open_disk(self, ref: Ref) -> OpenDisk:
        raise Unsupported(
            "the docker provider does not support open_disk: an engine shows the files of a "
            "container that does not run as one archive only",
            remediation="start the sandbox first",
        )

    async def destroy(self, ref: Ref) -> None:
        with contextlib.suppress(NotFound):
            identifier = self._id(ref)
            async with self._life.place.locks.hold(identifier):
                await uncancelled(self._life.unmake(await self._life.inspect(identifier)))

    async def renew(self, ref: Ref, until: float) -> Observation:
        raise Unsupported(
            "the docker provider never ends a sandbox by itself, so there is nothing to renew"
        )

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        if memory:
            raise checks.no_checkpoint(self._parts.engine)
        if ignore:
            raise Unsupported(
                "the docker provider leaves nothing out of a snapshot: a path that a further layer "
                "hides would still be in the image",
                remediation="take it with everything",
            )
        return await self._parts.snapshots.take(self._id(ref), key)

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        async for snapshot in self._parts.snapshots.all():
            yield snapshot

    async def delete_snapshot(self, ref: SnapshotRef) -> None:
        await self._parts.snapshots.delete(ref)

    async def fork(self, ref: Ref, key: str, spec: SandboxSpec) -> Observation:
        async with self._turns.take(key):
            if (existing := await self._existing(key, spec, self._id(ref))) is not None:
                return existing
            self._check(spec)
            async with self._parts.snapshots.forked(ref.id, key) as base:
                return await self._make(key, spec, base, ref.id)

    async def create_volume(self, volume: str, size_mib: int | None) -> None:
        refuse_volumes(self.name)

    async def delete_volume(self, volume: str) -> None:
        refuse_volumes(self.name)

    async def open_volume(self, volume: str) -> VolumeFiles:
        refuse_volumes(self.name)

    async def guest(self, ref: Ref) -> GuestAddress:
        container = await self._running(ref)
        return await self._life.machines.guests(container.record).address(container)

    async def _running(self, ref: Ref) -> Container:
        container = await self._life.current(self._id(ref))
        observed = await self._observed(container)
        if observed.state is not SandboxState.RUNNING:
            raise Conflict(
                f"sandbox {ref.id[:12]} is {observed.state}; only a running one can be talked to",
                remediation="resume or start it first",
            )
        return container

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        container = await self._running(ref)
        if self._parts.enterable:
            init = first_process(container)
            return Endpoint(port=port, netns_pid=init.pid, netns_started=init.started)
        return Endpoint(port=port, url=await self._life.machines.packed.url(container, port))

    async def set_egress(self, ref: Ref, policy: EgressPolicy) -> None:
        async with self._life.held(self._id(ref)) as container:
            if not self.capabilities.live_egress:
                raise Unsupported(
                    "Podman gives a container its network when it is made and not afterwards",
                    remediation="create the sandbox with the egress it shall have",
                )
            await fit_network(self._life, container, policy)

    async def usage(self, ref: Ref) -> Usage:
        container = await self._life.current(self._id(ref))
        return await usage.measure(self._parts.engine, container, near=self._parts.near)

    async def aclose(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        await self._parts.aclose()

    def _id(self, ref: Ref) -> str:
        if ref.provider != self.name or not _ID.fullmatch(ref.id):
            raise NotFound(
                f"there is no sandbox {ref.provider}/{ref.id[:80]} on the docker provider",
                remediation="`paddock sandbox ls` shows those that exist",
            )
        return ref.id
