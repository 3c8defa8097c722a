"""The reference provider with volumes: directories, bind-mounted in a namespace of the guest's."""

import os
import shutil
import stat
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock.domain.errors import InvalidRequest, NotFound
from paddock.ports.provider import SandboxSpec
from paddock.ports.volumes import Attributes, EntryKind, VolumeEntry, VolumeFiles
from paddock.testing.records import Record
from paddock.testing.reference import ReferenceProvider

# Something of its own at /mnt, so that the host has none of it; exec, so that the guest keeps the
# pid. What is mounted comes in pairs: from where, to where.
_MOUNTED = (
    "unshare --mount --propagation private sh -c '"
    'mount -t tmpfs none /mnt || exit; while [ "$1" != -- ]; do mkdir -p "$2"; '
    'mount --bind -o "$3" "$1" "$2" && mount -o "remount,bind,$3" "$2" || exit; shift 3; done; '
    'shift; exec "$@"\' sh'
)


class SharingProvider(ReferenceProvider):
    """Mounts volumes below /mnt. Nothing keeps them to a size."""

    async def create_volume(self, volume: str, size_mib: int | None) -> None:
        self._check_supported("create_volume")
        if size_mib is not None:
            self._cannot("create_volume with a size", "disk_limit")
        self._volume(volume).mkdir(parents=True, exist_ok=True)

    async def delete_volume(self, volume: str) -> None:
        self._check_supported("delete_volume")
        place = self._volume(volume)
        for entry in place.iterdir() if place.exists() else ():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.rmtree(place, ignore_errors=True)

    async def open_volume(self, volume: str) -> VolumeFiles:
        self._check_supported("open_volume")
        self._check_there(volume)
        return PlainFiles(self._volume(volume))

    def _volume(self, volume: str) -> Path:
        return self._place / "shared" / volume

    def _check_supported(self, operation: str) -> None:
        if os.geteuid() != 0:  # nothing can be mounted
            self._cannot(operation, "volumes")

    def _check_there(self, volume: str) -> None:
        if not self._volume(volume).exists():
            raise NotFound(f"provider {self.name} has no volume {volume}")

    def _check_volumes(self, spec: SandboxSpec) -> None:
        if not self.capabilities.volumes:
            super()._check_volumes(spec)
        for mount in spec.volumes:
            self._check_there(mount.volume)
            if not mount.path.startswith("/mnt/"):
                raise InvalidRequest(f"{mount.path} is not below /mnt")

    def _mounting(self, record: Record) -> tuple[str, ...]:
        """What the guest is started through, so that it sees what it mounts."""
        there = [each for each in record.volumes if self._volume(each.volume).exists()]
        if not there:
            return ()
        words = [
            word
            for each in there
            for word in (
                str(self._volume(each.volume)),
                each.path,
                "ro" if each.read_only else "rw",
            )
        ]
        return ("sh", "-c", f'exec {_MOUNTED} "$@"', "sh", *words, "--")


@dataclass(frozen=True, slots=True)
class PlainFiles:
    """The files of a directory, by their names: whoever writes there is trusted."""

    place: Path

    async def used_bytes(self) -> int:
        return sum(path.lstat().st_size for path in self.place.rglob("*"))

    async def stat(self, path: str) -> VolumeEntry:
        return self._entry(self._at(path))

    async def list(self, path: str, depth: int = 1) -> Sequence[VolumeEntry]:
        found = []
        for entry in sorted(self._at(path).iterdir()):
            found.append(self._entry(entry))
            if depth > 1 and entry.is_dir() and not entry.is_symlink():
                found += await self.list(str(entry.relative_to(self.place)), depth - 1)
        return found

    async def make_dir(
        self, path: str, wanted: Attributes, *, parents: bool = False
    ) -> VolumeEntry:
        self._at(path, missing=True).mkdir(parents=parents, exist_ok=parents)
        return await self.change(path, wanted)

    async def change(self, path: str, wanted: Attributes) -> VolumeEntry:
        place = self._at(path)
        os.chown(
            place,
            -1 if wanted.uid is None else wanted.uid,
            -1 if wanted.gid is None else wanted.gid,
        )
        if wanted.mode is not None:
            place.chmod(wanted.mode)
        return self._entry(place)

    async def remove(self, path: str) -> None:
        place = self._at(path)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()

    async def read(self, path: str) -> tuple[int, AsyncIterator[bytes]]:
        content = self._at(path).read_bytes()

        async def whole() -> AsyncIterator[bytes]:
            yield content

        return len(content), whole()

    async def write(
        self, path: str, content: AsyncIterable[bytes], wanted: Attributes, *, force: bool = False
    ) -> VolumeEntry:
        place = self._at(path, missing=True)
        if force:
            place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"".join([piece async for piece in content]))
        return await self.change(path, wanted)

    def _at(self, path: str, *, missing: bool = False) -> Path:
        place = self.place / path.lstrip("/")
        if not missing and not os.path.lexists(place):
            raise NotFound(f"there is no {path} in the volume")
        return place

    def _entry(self, place: Path) -> VolumeEntry:
        seen = place.lstat()
        kinds = {stat.S_IFREG: EntryKind.FILE, stat.S_IFDIR: EntryKind.DIRECTORY}
        return VolumeEntry(
            name=place.name,
            path=f"/{place.relative_to(self.place)}",
            kind=kinds.get(stat.S_IFMT(seen.st_mode), EntryKind.SYMLINK),
            size=seen.st_size,
            mode=stat.S_IMODE(seen.st_mode),
            uid=seen.st_uid,
            gid=seen.st_gid,
            accessed_at=seen.st_atime,
            modified_at=seen.st_mtime,
            changed_at=seen.st_ctime,
            target=str(place.readlink()) if place.is_symlink() else "",
        )
