"""Snapshots: the disk of a sandbox at one moment, kept beside the sandboxes."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.local import runtime
from paddock.adapters.providers.local.layout import image_of
from paddock.adapters.providers.local.leaving_out import leave_out, takes_all
from paddock.adapters.providers.local.life import Life, check_on_disk
from paddock.adapters.providers.local.quiet import quiet
from paddock.adapters.providers.local.records import Memory, SandboxRecord, SnapshotRecord
from paddock.adapters.providers.local.storage.programs import hurried, stoppable
from paddock.adapters.providers.local.storage.trees import tree_bytes
from paddock.adapters.providers.local.whereabouts import places_on_disk
from paddock.domain.errors import Broken, Conflict, NotFound, Unsupported
from paddock.domain.ids import is_ulid, new_ulid
from paddock.domain.ignoring import Whole, parsed, places_of_work
from paddock.domain.sandbox import SandboxState
from paddock.domain.snapshot import Snapshot, SnapshotRef

_PATIENCE = 100  # times 20 ms


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Those of one installation."""

    life: Life
    provider: str

    async def take(
        self, ref: str, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        """Freeze, copy, thaw. The record is written first and says `ready` last."""
        if (known := self._known(key, ref, memory=memory, ignore=ignore)) is not None:
            return known
        async with self.life.held(ref) as record:
            if (known := self._known(key, ref, memory=memory, ignore=ignore)) is not None:
                return known
            check_on_disk(record)
            parsed(ignore, places_of_work(record.user, record.workdir))
            await self._forget_abandoned(key)
            draft = replace(self._draft(record, key), ignore=ignore)
            if memory:
                _check_unmounted(record)
                draft = replace(draft, memory=self._describe(record))
            self.life.records.write_snapshot(draft)
            self.life.on_step("snapshot.noted")
            if self.life.keys.claim("snapshot", key, draft.id) != draft.id:
                self.life.records.remove_snapshot(draft.id)
                raise Conflict(f"a snapshot of another sandbox is being taken with the key {key!r}")
            self.life.on_step("snapshot.claimed")
            try:
                return await self._capture(record, draft)
            except BaseException as error:
                with hurried(error):
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

    def _describe(self, record: SandboxRecord) -> Memory:
        if record.state is not SandboxState.RUNNING:
            raise Conflict(
                f"sandbox {record.ref} is {record.state}; only of a running one memory is kept",
                remediation="resume or start it first, or take the snapshot without memory",
            )
        if runtime.choose(record.runtime).joinable:
            raise Unsupported(
                f"sandbox {record.ref} runs with {record.runtime}, and only of those with runsc "
                "memory is kept",
                remediation="take the snapshot without memory",
            )
        return self.life.memories.describe(record)

    def _still(
        self, record: SandboxRecord, draft: SnapshotRecord
    ) -> AbstractAsyncContextManager[None]:
        if draft.memory is None:
            return quiet(record, self.life.machines.cgroup(record.ref))
        return self._remembered(record, self.image(draft.id))

    @asynccontextmanager
    async def _remembered(self, record: SandboxRecord, image: Path) -> AsyncIterator[None]:
        """Its memory is on disk and nothing in it moves; then it goes on, whatever happens."""
        try:
            record = await uncancelled(self.life.memories.send_away(record))
            async with self.life.memories.written(record, image):
                yield
        finally:
            await uncancelled(self.life.memories.bring_back(record))
            self.life.on_step("memory.back")

    async def _capture(self, record: SandboxRecord, draft: SnapshotRecord) -> Snapshot:
        storage, target = self.life.storage, self.volume(draft.id)
        source = self.life.volume(record.ref)
        async with self._still(record, draft):
            self.life.on_step("snapshot.frozen")
            await stoppable(asyncio.to_thread(storage.clone, source, target))
            self.life.on_step("snapshot.copied")
        if draft.ignore:
            draft = await stoppable(self._without_ignored(draft))
        size = await stoppable(asyncio.to_thread(storage.usage, source))
        if draft.left_out.count:
            # What the source wrote counts, and what was left out may be among it or not.
            size = min(size, await stoppable(asyncio.to_thread(tree_bytes, target)))
        if draft.memory is not None:
            size += sum(file.stat().st_size for file in self.image(draft.id).iterdir())
        ready = replace(draft, ready=True, owner="", size_bytes=size)
        return self.life.records.write_snapshot(ready).snapshot(self.provider)

    async def _without_ignored(self, draft: SnapshotRecord) -> SnapshotRecord:
        """The sandbox goes on meanwhile: how long it takes depends on how much is left out."""
        rules, volume = parsed(draft.ignore), self.volume(draft.id)
        roots = (volume / "upper", Path(draft.lower))
        places = await asyncio.to_thread(places_on_disk, roots, draft.user, draft.workdir)
        if await asyncio.to_thread(takes_all, volume, rules, places):
            return replace(draft, whole=Whole.WORK)
        left_out = await asyncio.to_thread(leave_out, volume, rules)
        self.life.on_step("snapshot.left-out")
        return replace(draft, left_out=left_out)

    def _known(
        self, key: str, source: str, *, memory: bool, ignore: tuple[str, ...]
    ) -> Snapshot | None:
        holder = self.life.keys.holder("snapshot", key)
        record = self.life.records.read_snapshot(holder) if holder else None
        if record is None or not record.ready:
            return None
        if record.source != source:
            raise Conflict(
                f"the key {key!r} belongs to a snapshot of sandbox {record.source}",
                remediation="choose another key",
            )
        if (record.memory is not None) != memory:
            kind = "with" if record.memory else "without"
            raise Conflict(
                f"the key {key!r} belongs to a snapshot {kind} memory",
                remediation="choose another key",
            )
        if record.ignore != ignore:
            raise Conflict(
                f"the key {key!r} belongs to a snapshot that was taken by other rules",
                remediation="choose another key",
            )
        return record.snapshot(self.provider)

    def volume(self, snapshot: str) -> Path:
        return self.life.storage.pool / "snapshots" / snapshot

    def image(self, snapshot: str) -> Path:
        return image_of(self.life.storage.pool, snapshot)

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
            await self._delete_files(ref.id)
            self.life.records.remove_snapshot(ref.id)
            return
        if record is None:
            return
        self.life.records.write_snapshot(replace(record, ready=False, owner=self.life.owner.id))
        self.life.on_step("delete-snapshot.noted")
        await self._delete_files(ref.id)
        self.life.on_step("delete-snapshot.volume")
        self.life.keys.release("snapshot", record.key, ref.id)
        self.life.records.remove_snapshot(ref.id)

    async def _delete_files(self, snapshot: str) -> None:
        for place in (self.volume(snapshot), self.image(snapshot)):
            await asyncio.to_thread(self.life.storage.delete, place)


def _check_unmounted(record: SandboxRecord) -> None:
    """Processes go on with what was mounted for them, which another sandbox may not have."""
    if record.volumes:
        raise Conflict(
            f"sandbox {record.ref} mounts volumes, which its memory cannot go on without",
            remediation="take the snapshot without memory, or use a sandbox without volumes",
        )
