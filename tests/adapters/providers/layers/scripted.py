"""A provider that does what a script says, to see what the layers make of it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from paddock.domain.egress import EgressPolicy
from paddock.domain.guest import GuestAddress
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.ports.provider import (
    Capabilities,
    Endpoint,
    Health,
    Isolation,
    Observation,
    OpenDisk,
    PauseKind,
    Provider,
    Ref,
    SandboxSpec,
    Usage,
)
from paddock.ports.volumes import VolumeFiles
from paddock.testing.sharing import PlainFiles

ABLE = Capabilities(
    isolation=Isolation.CONTAINER,
    pause=PauseKind.MEMORY,
    stop=True,
    archive=True,
    sleeping_disk=True,
    snapshot=True,
    fork=True,
    egress=True,
    live_egress=True,
    late_ports=True,
    expires_itself=True,
    metrics=True,
    disk_limit=True,
    volumes=True,
    max_lifetime_s=3600,
    max_ports=3,
    max_labels=4,
)
UNABLE = Capabilities(isolation=Isolation.NONE)

REF = Ref("scripted", "one")
VOLUME = "vol_01m7hj8b21wwxymkxktjpv29sp"
SNAPSHOT = SnapshotRef("scripted", "shot")
SEEN = Observation(REF, "k", SandboxState.RUNNING, None, {}, Resources(), "base", 0.0)
SHOT = Snapshot(SNAPSHOT, "k", REF.id, "base", 0.0)

# One good call of every method of the port.
CALLS: dict[str, tuple[Any, ...]] = {
    "check": (),
    "create": ("k", SandboxSpec(template="base")),
    "observe": (REF,),
    "find": ({"team": "a"},),
    "pause": (REF,),
    "resume": (REF,),
    "stop": (REF,),
    "start": (REF,),
    "archive": (REF,),
    "open_disk": (REF,),
    "destroy": (REF,),
    "renew": (REF, 1_700_000_100.0),
    "snapshot": (REF, "k"),
    "snapshots": (),
    "delete_snapshot": (SNAPSHOT,),
    "fork": (REF, "k", SandboxSpec()),
    "create_volume": (VOLUME, 64),
    "delete_volume": (VOLUME,),
    "open_volume": (VOLUME,),
    "guest": (REF,),
    "endpoint": (REF, 8080),
    "set_egress": (REF, EgressPolicy()),
    "usage": (REF,),
    "aclose": (),
}


async def use(provider: Provider, operation: str, *arguments: Any) -> Any:
    """Call a method of the port; a listing is read to its end."""
    result = getattr(provider, operation)(*(arguments or CALLS[operation]))
    if isinstance(result, AsyncIterator):
        return [item async for item in result]
    return await result


class ScriptedProvider:
    """Does one step of its script per call: an error to raise, or seconds to take."""

    name = "scripted"

    def __init__(self, capabilities: Capabilities = ABLE) -> None:
        self._capabilities = capabilities
        self.script: list[Exception | float] = []
        self.calls: list[str] = []
        self.cancelled = 0
        self.seen = SEEN

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def _act(self, operation: str) -> None:
        self.calls.append(operation)
        step = self.script.pop(0) if self.script else 0.0
        if isinstance(step, Exception):
            raise step
        try:
            await asyncio.sleep(step)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def check(self) -> Health:
        await self._act("check")
        return Health(usable=True, findings=())

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        await self._act("create")
        return SEEN

    async def observe(self, ref: Ref) -> Observation:
        await self._act("observe")
        return self.seen

    async def find(self, labels: Mapping[str, str]) -> AsyncIterator[Observation]:
        yield SEEN
        await self._act("find")
        yield SEEN

    async def pause(self, ref: Ref) -> Observation:
        await self._act("pause")
        return SEEN

    async def resume(self, ref: Ref) -> Observation:
        await self._act("resume")
        return SEEN

    async def stop(self, ref: Ref, reason: Reason = Reason.USER) -> Observation:
        await self._act("stop")
        return SEEN

    async def start(self, ref: Ref) -> Observation:
        await self._act("start")
        return SEEN

    async def archive(self, ref: Ref) -> Observation:
        await self._act("archive")
        return SEEN

    async def open_disk(self, ref: Ref) -> OpenDisk:
        await self._act("open_disk")
        return OpenDisk(GuestAddress(socket="/run/disk"), self.aclose)

    async def destroy(self, ref: Ref) -> None:
        await self._act("destroy")

    async def renew(self, ref: Ref, until: float) -> Observation:
        await self._act("renew")
        return SEEN

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        await self._act("snapshot")
        return SHOT

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        yield SHOT
        await self._act("snapshots")
        yield SHOT

    async def delete_snapshot(self, ref: SnapshotRef) -> None:
        await self._act("delete_snapshot")

    async def fork(self, ref: Ref, key: str, spec: SandboxSpec) -> Observation:
        await self._act("fork")
        return SEEN

    async def create_volume(self, volume: str, size_mib: int | None) -> None:
        await self._act("create_volume")

    async def delete_volume(self, volume: str) -> None:
        await self._act("delete_volume")

    async def open_volume(self, volume: str) -> VolumeFiles:
        await self._act("open_volume")
        return PlainFiles(Path("/nowhere"))

    async def guest(self, ref: Ref) -> GuestAddress:
        await self._act("guest")
        return GuestAddress(socket="/run/guest")

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        await self._act("endpoint")
        return Endpoint(port)

    async def set_egress(self, ref: Ref, policy: EgressPolicy) -> None:
        await self._act("set_egress")

    async def usage(self, ref: Ref) -> Usage:
        await self._act("usage")
        return Usage()

    async def aclose(self) -> None:
        await self._act("aclose")
