"""Mounts that only the launcher sees: overlay roots, and what sandboxes see of the host's disks."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from paddock.adapters.providers.host import syscalls, user_namespaces
from paddock.adapters.providers.host.user_namespaces import Ids, Mappings

_ESCAPE = re.compile(r"\\([0-7]{3})")
_UNIFIED = "/sys/fs/cgroup/unified"


@dataclass(frozen=True, slots=True)
class Bind:
    """A bind mount of a host directory or file, which the runtime then mounts into a sandbox.

    The host's kernel enforces the attributes. Runtimes do not do so reliably: crun 1.8 drops them
    for writable mounts, and gVisor truncates read-only files.
    """

    source: str
    target: str
    read_only: bool = False
    noexec: bool = False
    stored: bool = False
    """Whether owners are those on disk, which have to be shifted to the sandbox's range."""

    @property
    def attributes(self) -> int:
        kept = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV
        kept |= syscalls.MOUNT_ATTR_RDONLY if self.read_only else 0
        return kept | (syscalls.MOUNT_ATTR_NOEXEC if self.noexec else 0)


@dataclass(frozen=True, slots=True)
class Overlay:
    """The root of a sandbox."""

    lowers: list[str]
    volume: str
    target: str
    above: str = ""
    """A read-only layer with the changes of a sandbox, mounted above the others."""
    stored: bool = True
    """Whether owners of the volume are those on disk, which have to be shifted."""


@dataclass
class Mounter:
    """Mounts in the launcher's own namespace, each for as long as a program runs."""

    directory: Path
    _numbers: Iterator[int] = field(default_factory=count)

    @classmethod
    def in_private_namespace(cls, directory: str, pool: str = "") -> "Mounter":
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_SLAVE)
        for foreign in _pools() - {pool}:
            # A copy of the mount would keep the pool in use after its own installation unmounts it.
            syscalls.umount(foreign, syscalls.MNT_DETACH)
        with contextlib.suppress(OSError):
            # crun refuses to work where cgroup v1 and v2 are mounted side by side.
            syscalls.umount(_UNIFIED, syscalls.MNT_DETACH)
        Path(directory).mkdir(parents=True, exist_ok=True)
        # Mount points of one's own, which nobody has to tidy up.
        syscalls.mount("tmpfs", directory, "tmpfs", 0, "mode=0711,size=1m")
        os.chdir(directory)  # layers of overlays are named from here
        return cls(Path(directory))

    def favour_cgroup_changes(self) -> None:
        """Make moving a process into a control group cost 0.3 ms instead of about 10.

        The kernel's lock for it is tuned for hosts on which groups hardly ever change. The option
        belongs to a hierarchy but acts on that one lock, so an empty one that only this namespace
        sees will do. Kernels before 6.0 do not know it and stay as they are.
        """
        target = self.directory / "cgroup"
        target.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):
            syscalls.mount("none", str(target), "cgroup", 0, "none,name=paddock,favordynmods")

    def mount_all(
        self,
        *,
        overlay: dict[str, Any] | None,
        binds: Iterable[dict[str, Any]],
        ids: dict[str, Any] | None,
    ) -> Callable[[], None]:
        """Mount everything that a program needs. The returned function unmounts it."""
        with contextlib.ExitStack() as mounted, contextlib.ExitStack() as held:
            mappings = None
            if ids is not None:
                wanted = Ids(**ids)
                mappings = held.enter_context(user_namespaces.opened(wanted))
                namespace = f"/proc/self/fd/{mappings.sandbox}"
                syscalls.mount(namespace, wanted.namespace, flags=syscalls.MS_BIND)
                mounted.callback(syscalls.umount, wanted.namespace, syscalls.MNT_DETACH)
            for bind in (Bind(**each) for each in binds):
                shift = mappings.disk if mappings and bind.stored else -1
                syscalls.mount_bind(bind.source, bind.target, bind.attributes, shift)
                mounted.callback(syscalls.umount, bind.target, syscalls.MNT_DETACH)
            if overlay is not None:
                mounted.callback(self._mount_overlay(Overlay(**overlay), mappings))
            return mounted.pop_all().close

    def _mount_overlay(self, overlay: "Overlay", mappings: Mappings | None) -> Callable[[], None]:
        """Mount a sandbox's root, the uppermost of the lower layers first; the answer unmounts.

        The layers are bind-mounted in the launcher's directory and named relative to it, so that no
        host path is in the sandbox's mount table. The overlay keeps its own clones of these mounts.
        """
        sandbox = mappings.sandbox if mappings else -1
        disk = mappings.disk if mappings else -1
        with contextlib.ExitStack() as views:
            lowers = [views.enter_context(self._view(each, sandbox)) for each in overlay.lowers]
            if overlay.above:
                lowers.insert(0, views.enter_context(self._view(overlay.above, disk)))
            shift = disk if overlay.stored else -1
            volume = views.enter_context(self._view(overlay.volume, shift))
            changed = f"upperdir={volume}/upper,workdir={volume}/work"
            # No index and no inode numbers across layers: a volume's copy is mounted elsewhere.
            options = f"lowerdir={':'.join(lowers)},{changed},index=off,xino=off,metacopy=off"
            syscalls.mount("overlay", overlay.target, "overlay", 0, options)
        return lambda: syscalls.umount(overlay.target, syscalls.MNT_DETACH)

    @contextlib.contextmanager
    def _view(self, source: str, mapping: int) -> Iterator[str]:
        """Bind-mount the source in the launcher's directory and yield its name there."""
        name = str(next(self._numbers))
        place = self.directory / name
        place.mkdir()
        try:
            syscalls.mount_bind(source, str(place), 0, mapping)
            try:
                yield name
            finally:
                syscalls.umount(str(place), syscalls.MNT_DETACH)
        finally:
            place.rmdir()


def _pools() -> set[str]:
    """Return the mount points of installations' pools: btrfs, with `pool.img` beside them."""
    lines = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    points = {fields[4] for fields in lines if fields[fields.index("-") + 1] == "btrfs"}
    return {each for each in map(_plain, points) if (Path(each).parent / "pool.img").exists()}


def _plain(point: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), point)
