"""A provider around a provider: every method of the port passes through one hook."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ParamSpec, Protocol, TypeVar

from paddock.domain.egress import EgressPolicy
from paddock.domain.guest import GuestAddress
from paddock.domain.reason import Reason
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.ports.provider import (
    Capabilities,
    Endpoint,
    Health,
    Observation,
    OpenDisk,
    Provider,
    Ref,
    SandboxSpec,
    Usage,
)
from paddock.ports.volumes import VolumeFiles

P = ParamSpec("P")
T = TypeVar("T")


class Operation(StrEnum):
    """Every method of the port by name; the tables of the layers are keyed by it."""

    CHECK = "check"
    CREATE = "create"
    OBSERVE = "observe"
    FIND = "find"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    START = "start"
    ARCHIVE = "archive"
    OPEN_DISK = "open_disk"
    DESTROY = "destroy"
    RENEW = "renew"
    SNAPSHOT = "snapshot"
    SNAPSHOTS = "snapshots"
    DELETE_SNAPSHOT = "delete_snapshot"
    FORK = "fork"
    CREATE_VOLUME = "create_volume"
    DELETE_VOLUME = "delete_volume"
    OPEN_VOLUME = "open_volume"
    GUEST = "guest"
    ENDPOINT = "endpoint"
    SET_EGRESS = "set_egress"
    USAGE = "usage"
    ACLOSE = "aclose"


@dataclass(frozen=True, slots=True)
class Call:
    """One use of the port: who, what, and with which arguments by name."""

    provider: str
    operation: Operation
    arguments: Mapping[str, Any]


class Layer(Protocol):
    """Something to do around a call. It may refuse, repeat, end or watch it."""

    async def around(self, call: Call, proceed: Callable[[], Awaitable[T]]) -> T: ...


class Layered:
    """A provider whose every call goes through one layer.

    Listings are read to their end before the first item is handed on: a listing that broke off in
    the middle would otherwise look like a short one, and what is not listed is taken for gone.
    """

    def __init__(self, inner: Provider, layer: Layer) -> None:
        self.name = inner.name
        self._inner = inner
        self._layer = layer

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    async def _pass(
        self,
        operation: Operation,
        method: Callable[P, Awaitable[T]],
        *args: P.args,
        **arguments: P.kwargs,
    ) -> T:
        call = Call(self.name, operation, arguments)
        return await self._layer.around(call, lambda: method(*args, **arguments))

    async def _list(
        self,
        operation: Operation,
        method: Callable[P, AsyncIterator[T]],
        *args: P.args,
        **arguments: P.kwargs,
    ) -> list[T]:
        async def collect() -> list[T]:
            return [item async for item in method(*args, **arguments)]

        return await self._layer.around(Call(self.name, operation, arguments), collect)

    async def check(self) -> Health:
        return await self._pass(Operation.CHECK, self._inner.check)

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        return await self._pass(Operation.CREATE, self._inner.create, key=key, spec=spec)

    async def observe(self, ref: Ref) -> Observation:
        return await self._pass(Operation.OBSERVE, self._inner.observe, ref=ref)

    async def find(self, labels: Mapping[str, str]) -> AsyncIterator[Observation]:
        for found in await self._list(Operation.FIND, self._inner.find, labels=labels):
            yield found

    async def pause(self, ref: Ref) -> Observation:
        return await self._pass(Operation.PAUSE, self._inner.pause, ref=ref)

    async def resume(self, ref: Ref) -> Observation:
        return await self._pass(Operation.RESUME, self._inner.resume, ref=ref)

    async def stop(self, ref: Ref, reason: Reason = Reason.USER) -> Observation:
        return await self._pass(Operation.STOP, self._inner.stop, ref=ref, reason=reason)

    async def start(self, ref: Ref) -> Observation:
        return await self._pass(Operation.START, self._inner.start, ref=ref)

    async def archive(self, ref: Ref) -> Observation:
        return await self._pass(Operation.ARCHIVE, self._inner.archive, ref=ref)

    async def open_disk(self, ref: Ref) -> OpenDisk:
        return await self._pass(Operation.OPEN_DISK, self._inner.open_disk, ref=ref)

    async def destroy(self, ref: Ref) -> None:
        await self._pass(Operation.DESTROY, self._inner.destroy, ref=ref)

    async def renew(self, ref: Ref, until: float) -> Observation:
        return await self._pass(Operation.RENEW, self._inner.renew, ref=ref, until=until)

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        return await self._pass(
            Operation.SNAPSHOT, self._inner.snapshot, ref=ref, key=key, memory=memory, ignore=ignore
        )

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        for found in await self._list(Operation.SNAPSHOTS, self._inner.snapshots):
            yield found

    async def delete_snapshot(self, ref: SnapshotRef) -> None:
        await self._pass(Operation.DELETE_SNAPSHOT, self._inner.delete_snapshot, ref=ref)

    async def fork(self, ref: Ref, key: str, spec: SandboxSpec) -> Observation:
        return await self._pass(Operation.FORK, self._inner.fork, ref=ref, key=key, spec=spec)

    async def create_volume(self, volume: str, size_mib: int | None) -> None:
        await self._pass(
            Operation.CREATE_VOLUME, self._inner.create_volume, volume=volume, size_mib=size_mib
        )

    async def delete_volume(self, volume: str) -> None:
        await self._pass(Operation.DELETE_VOLUME, self._inner.delete_volume, volume=volume)

    async def open_volume(self, volume: str) -> VolumeFiles:
        return await self._pass(Operation.OPEN_VOLUME, self._inner.open_volume, volume=volume)

    async def guest(self, ref: Ref) -> GuestAddress:
        return await self._pass(Operation.GUEST, self._inner.guest, ref=ref)

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        return await self._pass(Operation.ENDPOINT, self._inner.endpoint, ref=ref, port=port)

    async def set_egress(self, ref: Ref, policy: EgressPolicy) -> None:
        await self._pass(Operation.SET_EGRESS, self._inner.set_egress, ref=ref, policy=policy)

    async def usage(self, ref: Ref) -> Usage:
        return await self._pass(Operation.USAGE, self._inner.usage, ref=ref)

    async def aclose(self) -> None:
        await self._pass(Operation.ACLOSE, self._inner.aclose)
