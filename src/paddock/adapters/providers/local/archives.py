"""Archives: the disk of a sandbox that nobody needs for long, as one compressed file.

At every moment there is a whole copy, and the record says which one counts: the volume, or the
file. What a killed process leaves beside it is only a copy more, and the next one removes it.
"""

import asyncio
import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.local.layout import archive_of, archives_of
from paddock.adapters.providers.local.life import Life
from paddock.adapters.providers.local.packing import free, pack, unpack
from paddock.adapters.providers.local.records import Archived, SandboxRecord, persist
from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.storage.programs import hurried, stoppable
from paddock.adapters.providers.local.storage.trees import tree_bytes
from paddock.adapters.providers.local.storage.volumes import abandoned_drafts, draft_name
from paddock.domain.errors import Broken, LimitExceeded, QuotaExceeded
from paddock.domain.sandbox import SandboxState, transition

_SUFFIX = ".tar.zst"


@dataclass(frozen=True, slots=True)
class Archives:
    """Those of one installation. Whoever calls holds the lock of the sandbox."""

    life: Life

    def file(self, ref: str) -> Path:
        return archive_of(self.life.layout, ref)

    async def put_away(self, record: SandboxRecord) -> SandboxRecord:
        """Pack, write down that the file counts, delete the volume."""
        if record.state is SandboxState.ARCHIVED:
            await self.settle(record)
            return record
        transition(record.ref, record.state, SandboxState.ARCHIVED)
        sizes = await asyncio.to_thread(self._measure, record)
        # Others who start meanwhile see that somebody is at it, and do not wait for the lock.
        record = self.life.records.change(record, owner=self.life.owner.id)
        try:
            await self._keep(record.ref)
            archived = replace(record, state=SandboxState.ARCHIVED, archive=sizes, owner="")
            self.life.records.write(archived)
        except BaseException:
            with contextlib.suppress(LimitExceeded):
                self.life.records.change(record, owner="")
            self.file(record.ref).unlink(missing_ok=True)
            raise
        persist(self.life.layout.record(record.ref))
        self.life.on_step("archive.noted")
        await self.settle(archived)
        self.life.on_step("archive.volume")
        return archived

    def _measure(self, record: SandboxRecord) -> Archived:
        """LimitExceeded when it could not be unpacked again: a copy of files may share blocks."""
        volume, storage = self.life.volume(record.ref), self.life.storage
        with explained(volume):
            whole = tree_bytes(volume)
        counted = storage.usage(volume)
        if whole > free(storage.pool) + counted:
            raise LimitExceeded(
                f"the files of sandbox {record.ref} share blocks: unpacked they would take "
                f"{whole >> 20} MiB, and the pool has no room for that",
                remediation="leave it stopped, or enlarge the pool",
            )
        return Archived(unpacked_bytes=whole, counted_bytes=counted)

    async def _keep(self, ref: str) -> None:
        directory = archives_of(self.life.layout)
        with explained(directory):
            directory.mkdir(mode=0o700, exist_ok=True)
        draft = directory / draft_name()
        try:
            await pack(self.life.volume(ref), draft)
            self.life.on_step("archive.packed")
            with explained(draft):
                persist(draft.rename(self.file(ref)))
        finally:
            draft.unlink(missing_ok=True)
        self.life.on_step("archive.kept")

    async def bring_back(self, record: SandboxRecord) -> SandboxRecord:
        """Unpack into a new volume, write down that it counts, delete the file."""
        self._check_file(record)
        await self.settle(record)  # what an attempt may have left that was killed
        self._check_room(record)
        # A start that is killed leaves an archived sandbox, which nobody may take for being made.
        record = self.life.records.change(record, owner=self.life.owner.id)
        try:
            stopped = await self._fill(record)
            self.life.records.write(stopped)
        except BaseException as error:
            volume = self.life.volume(record.ref)
            with hurried(error):
                await uncancelled(asyncio.to_thread(self.life.storage.delete, volume))
            with contextlib.suppress(LimitExceeded):
                self.life.records.change(record, owner="")
            raise
        persist(self.life.layout.record(record.ref))
        self.life.on_step("unarchive.noted")
        await self.settle(stopped)
        self.life.on_step("unarchive.file")
        return stopped

    async def _fill(self, record: SandboxRecord) -> SandboxRecord:
        """The limit comes last, and is for what is written from then on as it was before.

        Blocks that a fork shared with its source did not count for it. Now they are its own.
        """
        storage, volume = self.life.storage, self.life.volume(record.ref)
        owner = record.idmap.first if record.idmap else 0
        await uncancelled(asyncio.to_thread(storage.create, volume, owner))
        self.life.on_step("unarchive.volume")
        await unpack(self.file(record.ref), volume)
        self.life.on_step("unarchive.unpacked")
        before = record.archive.counted_bytes if record.archive else 0
        more = await stoppable(asyncio.to_thread(storage.usage, volume)) - before
        granted = record.granted_bytes + max(0, more)
        limit = (record.resources.disk_mib << 20) + granted
        await uncancelled(asyncio.to_thread(storage.set_limit, volume, limit))
        self.life.on_step("unarchive.limit")
        return replace(
            record, state=SandboxState.STOPPED, archive=None, granted_bytes=granted, owner=""
        )

    def _check_file(self, record: SandboxRecord) -> None:
        file = self.file(record.ref)
        if not file.is_file():
            raise Broken(
                f"the archive {file} of sandbox {record.ref} is not there",
                remediation="restore it from a backup, or destroy the sandbox",
            )

    def _check_room(self, record: SandboxRecord) -> None:
        need = record.archive.unpacked_bytes if record.archive else 0
        room = free(self.life.storage.pool)
        if need > room:
            raise QuotaExceeded(
                f"sandbox {record.ref} takes {need >> 20} MiB when it is unpacked, and the pool "
                f"has {room >> 20} MiB to spare",
                remediation="delete sandboxes or snapshots that are no longer needed, or enlarge "
                "the pool; the sandbox is archived as before",
            )

    async def settle(self, record: SandboxRecord) -> None:
        """Of two copies, the one that does not count goes."""
        file, volume = self.file(record.ref), self.life.volume(record.ref)
        if record.state is not SandboxState.ARCHIVED:
            if volume.exists():
                file.unlink(missing_ok=True)
        elif file.exists():
            await stoppable(asyncio.to_thread(self.life.storage.delete, volume))

    def disk_bytes(self, ref: str) -> int:
        """What the disk costs, as a volume or as a file."""
        with contextlib.suppress(FileNotFoundError):
            if not self.life.volume(ref).exists():
                return self.file(ref).stat().st_size
        return self.life.storage.usage(self.life.volume(ref))

    def sweep(self) -> None:
        """Files of nobody, and half of files. What is there is listed before what is known."""
        directory = archives_of(self.life.layout)
        files = list(directory.glob(f"*{_SUFFIX}"))
        known = set(self.life.records.refs())
        for file in files:
            if file.name.removesuffix(_SUFFIX) not in known:
                file.unlink(missing_ok=True)
        for draft in abandoned_drafts(directory):
            draft.unlink(missing_ok=True)
