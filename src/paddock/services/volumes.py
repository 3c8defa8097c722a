"""Volumes of teams: made, listed, looked into, let go."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Conflict, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_id
from paddock.domain.quota import Usage
from paddock.domain.team import Principal, Scope
from paddock.domain.volume import (
    DEFAULT_MIB,
    VOLUME_PREFIX,
    VolumeRecord,
    VolumeState,
    check_size,
    check_volume_name,
    usable,
)
from paddock.ports.clock import Clock
from paddock.ports.provider import Provider
from paddock.ports.store import ANY_TEAM, Page, Store, Transaction
from paddock.ports.volumes import VolumeFiles
from paddock.services.mounting import users_of
from paddock.services.once import fingerprint_of
from paddock.services.providers import Providers
from paddock.services.quotas import check_quota

_log = logging.getLogger(__name__)
_AT_ONCE = 100
_NAMED = 5
_ABANDONED_S = 600.0
"""Longer than any attempt to make or delete one takes."""


@dataclass(frozen=True, slots=True)
class VolumeWish:
    """What somebody wants a volume to be."""

    name: str
    size_mib: int | None = None
    """None is the default where the provider can keep it to a size."""
    provider: str = ""


class Volumes:
    """The verbs of a volume. Who works in sandboxes works with what they mount."""

    def __init__(self, store: Store, clock: Clock, providers: Providers) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers

    async def create(self, principal: Principal, wish: VolumeWish, key: str = "") -> VolumeRecord:
        """An empty one. The same key gives the same one."""
        principal.require(Scope.SANDBOXES_WRITE)
        provider = self._providers.get(wish.provider)
        record = VolumeRecord(
            id=new_id(VOLUME_PREFIX),
            team_id=principal.team_id,
            name=check_volume_name(wish.name),
            provider=provider.name,
            state=VolumeState.CREATING,
            created_at=self._clock.wall(),
            size_mib=_size(provider, wish),
        )
        entered = await self._store.write(lambda tx: _entered(tx, record, wish, key))
        if entered.id != record.id:
            return usable(entered, entered.name)
        try:
            await provider.create_volume(record.id, record.size_mib)
        except PaddockError:
            await self._store.write(lambda tx: _forget(tx, record))
            raise

        def made(tx: Transaction) -> VolumeRecord:
            tx.volumes.set_state(record.id, VolumeState.READY)
            self._tell(tx, principal, record, EventKind.VOLUME_CREATED)
            found = tx.volumes.get(ANY_TEAM, record.id)
            return usable(found, record.name)

        return await self._store.write(made)

    async def get(self, principal: Principal, name: str) -> VolumeRecord:
        principal.require(Scope.SANDBOXES_READ)
        found = await self._store.read(lambda tx: tx.volumes.get(principal.team_id, name))
        return usable(found, name)

    async def list(self, principal: Principal, page: Page) -> Sequence[VolumeRecord]:
        """Newest first."""
        principal.require(Scope.SANDBOXES_READ)
        return await self._store.read(lambda tx: tx.volumes.list(principal.team_id, page))

    async def users(self, principal: Principal, volume: VolumeRecord) -> Sequence[str]:
        """The names of the sandboxes that mount it."""
        principal.require(Scope.SANDBOXES_READ)
        found = await self._store.read(lambda tx: users_of(tx, volume))
        return [sandbox.name for sandbox in found]

    async def files(self, principal: Principal, name: str) -> VolumeFiles:
        """What is in it, to be read and written."""
        principal.require(Scope.SANDBOXES_WRITE)
        return await self.open(await self.get(principal, name))

    async def open(self, volume: VolumeRecord) -> VolumeFiles:
        """For who has been let in already."""
        return await self._providers.get(volume.provider).open_volume(volume.id)

    async def find(self, volume_id: str) -> VolumeRecord:
        """Of any team: for what is recognised by its secret alone."""
        found = await self._store.read(lambda tx: tx.volumes.get(ANY_TEAM, volume_id))
        return usable(found, volume_id)

    async def delete(self, principal: Principal, name: str, *, force: bool = False) -> None:
        """With everything in it. Conflict while sandboxes mount it, unless it is forced: they find
        an empty directory then, and start without it."""
        principal.require(Scope.SANDBOXES_WRITE)

        def begin(tx: Transaction) -> VolumeRecord:
            volume = usable(tx.volumes.get(principal.team_id, name), name)
            users = [sandbox.name for sandbox in users_of(tx, volume)]
            if users and not force:
                raise _in_use(volume, users)
            tx.volumes.set_state(volume.id, VolumeState.DELETING)
            self._tell(tx, principal, volume, EventKind.VOLUME_DELETED, users=users)
            return volume

        await self._remove(await self._store.write(begin))

    async def _remove(self, volume: VolumeRecord) -> None:
        await self._providers.get(volume.provider).delete_volume(volume.id)
        await self._store.write(lambda tx: _forget(tx, volume))

    async def settle(self, *, at_start: bool = False) -> None:
        """What was begun and never ended: nobody has heard of it, or it was to go anyway."""
        unfinished = await self._store.read(lambda tx: tx.volumes.unfinished(_AT_ONCE))
        nobodys = at_start and self._store.was_unused
        since = self._clock.wall() - (0.0 if nobodys else _ABANDONED_S)
        for volume in unfinished:
            if volume.state is VolumeState.CREATING and volume.created_at > since:
                continue
            try:
                await self._remove(volume)
            except PaddockError as error:
                details = {"id": volume.id, "error": error.message}
                _log.warning("volume could not be removed", extra=details)

    def _tell(
        self,
        tx: Transaction,
        principal: Principal,
        volume: VolumeRecord,
        kind: EventKind,
        *,
        users: Sequence[str] = (),
    ) -> None:
        now, actor = self._clock.wall(), principal.actor
        data: dict[str, object] = {"name": volume.name, "provider": volume.provider}
        if users:
            data["mounted_by"] = list(users)
        tx.events.append([Event(volume.team_id, kind, volume.id, now, data, actor)])
        action = kind.replace("created", "create").replace("deleted", "delete")
        tx.audit.append([AuditEntry(volume.team_id, actor, action, volume.id, now, data)])


def _size(provider: Provider, wish: VolumeWish) -> int | None:
    if wish.size_mib is None:
        return DEFAULT_MIB if provider.capabilities.disk_limit else None
    return check_size(wish.size_mib)


def _entered(tx: Transaction, record: VolumeRecord, wish: VolumeWish, key: str) -> VolumeRecord:
    if key:
        claimed = tx.keys.claim(
            record.team_id,
            key,
            fingerprint=fingerprint_of("volume", wish),
            object_id=record.id,
            now=record.created_at,
        )
        if claimed != record.id:
            return _earlier(tx, record.team_id, claimed)
    check_quota(tx, record.team_id, Usage(disk_mib=record.size_mib or DEFAULT_MIB))
    tx.volumes.add(record)
    return record


def _earlier(tx: Transaction, team_id: str, volume_id: str) -> VolumeRecord:
    """What the same request has made before."""
    found = tx.volumes.get(team_id, volume_id)
    if found is None or found.state is VolumeState.DELETING:
        raise Conflict(
            f"this request has made volume {volume_id}, which has been deleted since",
            remediation="use a new idempotency key to make another",
        )
    return found


def _forget(tx: Transaction, volume: VolumeRecord) -> None:
    """The key of one that was never made may be used again; of one that was it stays taken."""
    tx.volumes.remove(volume.id)
    if volume.state is VolumeState.CREATING:
        tx.keys.release(volume.team_id, volume.id)


def _in_use(volume: VolumeRecord, users: Sequence[str]) -> Conflict:
    more = f" and {len(users) - _NAMED} more" if len(users) > _NAMED else ""
    return Conflict(
        f"volume {volume.name} is mounted by {', '.join(users[:_NAMED])}{more}",
        remediation="remove these sandboxes first, or delete it with --force (`force` in the API): "
        "the sandboxes continue without it",
    )
