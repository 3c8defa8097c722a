"""Snapshots and forks: images of a sandbox's disk, taken while the engine holds it still."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from paddock.adapters.providers.docker import records
from paddock.adapters.providers.docker.images import Base
from paddock.adapters.providers.docker.life import Life
from paddock.adapters.providers.docker.names import NEW
from paddock.adapters.providers.docker.records import Container, ImageRecord
from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.host.owner import Turns
from paddock.domain.errors import Broken, Conflict, NotFound
from paddock.domain.sandbox import SandboxState
from paddock.domain.snapshot import Snapshot, SnapshotRef

_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Those of one installation. One has a name when it is whole, and loses it when deleted."""

    life: Life
    turns: Turns = field(default_factory=Turns)

    async def take(self, ref: str, key: str) -> Snapshot:
        async with self.turns.take(key):
            if (known := await self._known(key, ref)) is not None:
                return known
            name = self.life.names.snapshot(key)
            async with self.life.held(ref) as container:
                record = self._record(container, key)
                try:
                    image = await uncancelled(
                        self._copy(container, records.SNAPSHOT, record, name + NEW)
                    )
                    self.life.on_step("snapshot.copied")
                    await self.life.images.tag(image, name)
                    self.life.on_step("snapshot.named")
                finally:
                    await uncancelled(self.life.images.untag(name + NEW))
            size = await self.life.images.added_bytes(image)
            return records.snapshot_of(self.life.provider, image, record, size)

    def _record(self, container: Container, key: str) -> ImageRecord:
        return ImageRecord(
            key=key,
            source=container.id,
            defaults=container.record.defaults,
            created_at=time.time(),
            maker=self.life.place.maker,
        )

    async def _copy(
        self, container: Container, kind: str, record: ImageRecord, name: str = ""
    ) -> str:
        marks = records.labels(self.life.names.installation, kind, record)
        running = container.state is SandboxState.RUNNING
        if running:
            self.life.copied.add(container.id)
        try:
            return await self.life.images.commit(container.id, marks, name)
        finally:
            if running:
                self.life.copied.discard(container.id)

    async def _known(self, key: str, source: str) -> Snapshot | None:
        name = self.life.names.snapshot(key)
        seen = await self.life.images.find(name)
        if seen is None:
            return None
        record = records.read(seen["Config"].get("Labels"), ImageRecord, f"image {name}")
        if record.source != source:
            raise Conflict(
                f"the key {key!r} belongs to a snapshot of sandbox {record.source[:12]}",
                remediation="choose another key",
            )
        size = await self.life.images.added_bytes(seen["Id"])
        return records.snapshot_of(self.life.provider, seen["Id"], record, size)

    @asynccontextmanager
    async def forked(self, ref: str, key: str) -> AsyncIterator[Base]:
        """A base for a fork. It has no name and goes with the last container that stands on it."""
        async with self.life.held(ref) as container:
            record = self._record(container, key)
            image = await uncancelled(self._copy(container, records.FORK, record))
        try:
            self.life.on_step("fork.copied")
            yield Base(image, container.record.defaults)
        finally:
            # The engine refuses while the fork stands on it, which is then as it should be.
            await uncancelled(self.life.images.discard(image))

    async def base(self, ref: SnapshotRef) -> Base:
        name, record = await self._find(ref)
        del name
        return Base(f"sha256:{ref.id}", record.defaults)

    async def delete(self, ref: SnapshotRef) -> None:
        """Absent is success; sandboxes made of it keep the image, without its name."""
        try:
            name, _ = await self._find(ref)
        except NotFound:
            return
        await self.life.images.untag(name)

    async def _find(self, ref: SnapshotRef) -> tuple[str, ImageRecord]:
        ours = ref.provider == self.life.provider and _ID.fullmatch(ref.id)
        seen = await self.life.images.find(f"sha256:{ref.id}") if ours else None
        marks = ((seen or {}).get("Config") or {}).get("Labels") or {}
        if marks.get(records.KIND) == records.SNAPSHOT:
            record = records.read(marks, ImageRecord, f"image {ref.id[:12]}")
            name = self.life.names.snapshot(record.key)
            if seen is not None and _carries(seen.get("RepoTags"), name):
                return name, record
        raise NotFound(f"there is no snapshot {ref.id[:40]} on the docker provider")

    async def all(self) -> AsyncIterator[Snapshot]:
        for seen in await self.life.images.of_kind(records.SNAPSHOT):
            try:
                record = records.read(seen.get("Labels"), ImageRecord, f"image {seen['Id']}")
            except Broken:
                continue
            if _carries(seen.get("RepoTags"), self.life.names.snapshot(record.key)):
                size = await self.life.images.added_bytes(seen["Id"])
                yield records.snapshot_of(self.life.provider, seen["Id"], record, size)


def _carries(tags: list[str] | None, name: str) -> bool:
    """Podman puts the registry `localhost/` before names without one."""
    return any(tag.removeprefix("localhost/") == name for tag in tags or ())
