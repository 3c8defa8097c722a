"""Snapshots: the disk of a sandbox at one moment, kept beside the sandboxes."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.local.life import Life, check_on_disk
from paddock.adapters.providers.local.quiet import quiet
from paddock.adapters.providers.local.records import SandboxRecord, SnapshotRecord
from paddock.domain.errors import Broken, Conflict, NotFound
from paddock.domain.ids import is_ulid, new_ulid
from paddock.domain.snapshot import Snapshot, SnapshotRef

_PATIENCE = 100  # times 20 ms


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Those of one installation."""

    life: Life
    provider: str

    async def take(self, ref: str, key: str) -> Snapshot:
        """Freeze, copy, thaw. The record is written first and says `ready` last."""
        if (known := self._known(key, ref)) is not None:
            return known
        async with self.life.held(ref) as record:
            if (known := self._known(key, ref)) is not None:
                return known
            check_on_disk(record)
            await self._forget_abandoned(key)
            draft = self._draft(record, key)
            self.life.records.write_snapshot(draft)
            self.life.on_step("snapshot.noted")
            if self.life.keys.claim("snapshot", key, draft.id) != draft.id:
                self.life.records.remove_snapshot(draft.id)
                raise Conflict(f"a snapshot of another sandbox is being taken with the key {key!r}")
            self.life.on_step("snapshot.claimed")
            try:
                return await self._capture(record, draft)
            except BaseException:
                await uncancelled(self.delete(SnapshotRef(self.provider, draft.id)))
                raise

    async def _forget_abandoned(self, key: str) -> None:
        """A snapshot that was begun with this key by a process that is gone gives the key back.

        A dead process counts as alive until its launcher has noticed, which takes a moment.
        """
        for _ in range(_PATIENCE):
            holder = self.life.keys.holder("snapshot", key)
            if holder is None:
                return
            record = self.life.records.read_snapshot(holder)
            if record is None:
                self.life.keys.release("snapshot", key, holder)
            elif record.ready:
                return
            elif not self.life.owner.is_alive(record.owner):
                await self.delete(SnapshotRef(self.provider, holder))
            else:
                await asyncio.sleep(0.02)

    def _draft(self, record: SandboxRecord, key: str) -> SnapshotRecord:
        return SnapshotRecord(
            id=new_ulid(),
            key=key,
            source=record.ref,
            template=record.template,
            digest=record.digest,
            lower=record.lower,
            created_at=time.time(),
            runtime=record.runtime,
            idmap=record.idmap,
            owner=self.life.owner.id,
            env=dict(record.env),
            user=record.user,
            workdir=record.workdir,
            no_new_privs=record.no_new_privs,
        )

    async def _capture(self, record: SandboxRecord, draft: SnapshotRecord) -> Snapshot:
        storage, target = self.life.storage, self.volume(draft.id)
        async with quiet(record, self.life.machines.cgroup(record.ref)):
            self.life.on_step("snapshot.frozen")
            source = self.life.volume(record.ref)
            await uncancelled(asyncio.to_thread(storage.clone, source, target))
            self.life.on_step("snapshot.copied")
        size = await asyncio.to_thread(storage.usage, self.life.volume(record.ref))
        ready = replace(draft, ready=True, owner="", size_bytes=size)
        return self.life.records.write_snapshot(ready).snapshot(self.provider)

    def _known(self, key: str, source: str) -> Snapshot | None:
        holder = self.life.keys.holder("snapshot", key)
        record = self.life.records.read_snapshot(holder) if holder else None
        if record is None or not record.ready:
            return None
        if record.source != source:
            raise Conflict(
                f"the key {key!r} belongs to a snapshot of sandbox {record.source}",
                remediation="choose another key",
            )
        return record.snapshot(self.provider)

    def volume(self, snapshot: str) -> Path:
        return self.life.storage.pool / "snapshots" / snapshot

    def get(self, ref: SnapshotRef) -> SnapshotRecord:
        record = self._read(ref)
        if record is None or not record.ready:
            raise NotFound(f"there is no snapshot {ref.id} on the local provider")
        return record

    def _read(self, ref: SnapshotRef) -> SnapshotRecord | None:
        if ref.provider != self.provider or not is_ulid(ref.id):
            return None
        return self.life.records.read_snapshot(ref.id)

    def all(self) -> Iterator[Snapshot]:
        for record in self.life.records.snapshots():
            if record.ready:
                yield record.snapshot(self.provider)

    async def delete(self, ref: SnapshotRef) -> None:
        """Absent is success; of one whose record cannot be read, whatever there is goes."""
        try:
            record = self._read(ref)
        except Broken:
            await asyncio.to_thread(self.life.storage.delete, self.volume(ref.id))
            self.life.records.remove_snapshot(ref.id)
            return
        if record is None:
            return
        self.life.records.write_snapshot(replace(record, ready=False, owner=self.life.owner.id))
        self.life.on_step("delete-snapshot.noted")
        await asyncio.to_thread(self.life.storage.delete, self.volume(ref.id))
        self.life.on_step("delete-snapshot.volume")
        self.life.keys.release("snapshot", record.key, ref.id)
        self.life.records.remove_snapshot(ref.id)
