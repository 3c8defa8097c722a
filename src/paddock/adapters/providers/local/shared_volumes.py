"""Volumes that sandboxes share: directories in the pool, mounted where a sandbox wants them."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.local.bundle import IdMap, bind
from paddock.adapters.providers.local.plan import Plan, host_resources
from paddock.adapters.providers.local.storage import Storage
from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.storage.volumes import SHARED
from paddock.adapters.providers.local.volume_files import USER, LocalVolumeFiles
from paddock.domain.errors import Conflict, InvalidRequest, NotFound, Unsupported
from paddock.domain.ids import is_id
from paddock.domain.volume import VOLUME_PREFIX, VolumeMount
from paddock.ports.provider import SandboxSpec


@dataclass(frozen=True, slots=True)
class SharedVolumes:
    """Those of one pool. How their owners are shifted is said by whom the directory around the
    files belongs to, which no sandbox sees."""

    storage: Storage
    idmap: IdMap | None
    """What the runtime of this installation shifts owners by."""

    def place(self, volume: str) -> Path:
        if not is_id(volume, VOLUME_PREFIX):
            raise _missing(volume)
        return self.storage.pool / SHARED / volume

    async def create(self, volume: str, size_mib: int | None) -> None:
        if size_mib is not None and not self.storage.enforces_disk_limit:
            raise Unsupported(
                f"the storage {self.storage.name} keeps no volume to a size",
                remediation="leave the size out",
            )
        if size_mib is not None and size_mib > (most := host_resources(self.storage.pool).disk_mib):
            raise InvalidRequest(
                f"a volume of {size_mib} MiB was requested, but this host's pool has {most} MiB",
                remediation=f"request {most} MiB or less",
            )
        await uncancelled(asyncio.to_thread(self._create, self.place(volume), size_mib))

    def _create(self, place: Path, size_mib: int | None) -> None:
        owner = self.idmap.first if self.idmap else 0
        with suppress(Conflict):  # an earlier attempt came so far
            self.storage.create(place, owner)
        if size_mib is not None:
            self.storage.set_limit(place, size_mib << 20)
        with explained(place):
            os.chown(place / "upper", owner + USER, owner + USER)

    async def delete(self, volume: str) -> None:
        await uncancelled(asyncio.to_thread(self._delete, self.place(volume)))

    def _delete(self, place: Path) -> None:
        if place.exists():  # what is mounted in a sandbox stays there, with nothing in it
            self.storage.empty(place)
        self.storage.delete(place)

    async def open(self, volume: str) -> LocalVolumeFiles:
        place = self.place(volume)
        if not place.exists():
            raise _missing(volume)
        return LocalVolumeFiles(self.storage, place, place.stat().st_uid)

    def check(self, mounts: Sequence[VolumeMount], idmap: IdMap | None) -> None:
        """Before a sandbox is made: they are there, and their owners are those that it sees."""
        for mount in mounts:
            place = self.place(mount.volume)
            if not place.exists():
                raise _missing(mount.volume)
            if place.stat().st_uid != (idmap.first if idmap else 0):
                raise Conflict(
                    f"the files of volume {mount.name or mount.volume} were not made for this "
                    "runtime: their owners are shifted differently",
                    remediation="use the runtime that the installation is configured for",
                )


def check_volumes(shared: SharedVolumes, spec: SandboxSpec, plan: Plan) -> None:
    """Before anything is made of the spec."""
    if spec.volumes and plan.image is not None:
        raise InvalidRequest(
            "processes that go on have what was mounted for them, and nothing more",
            remediation="leave the volumes out, or take the snapshot without memory",
        )
    shared.check(spec.volumes, plan.idmap)


def volume_binds(
    pool: Path, mounts: Sequence[VolumeMount], *, read_only: bool
) -> tuple[dict[str, Any], ...]:
    """For a bundle. A volume that was deleted is left out: its sandbox starts without it."""
    found = [(pool / SHARED / mount.volume / "upper", mount) for mount in mounts]
    return tuple(
        bind(str(source), mount.path, "ro" if read_only or mount.read_only else "rw")
        for source, mount in found
        if source.exists()
    )


def _missing(volume: str) -> NotFound:
    return NotFound(f"there is no volume {volume[:80]} on the local provider")
