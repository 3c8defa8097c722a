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
    """A directory or a file of the host at another path, where a runtime takes it from.

    The kernel of the host enforces the attributes. A runtime cannot be relied upon: crun 1.8 drops
    them for what may be written to, and gVisor truncates files that may only be read.
    """

    source: str
    target: str
    read_only: bool = False
    noexec: bool = False
    stored: bool = False
    """Its owners are those of a disk, to be shifted to the sandbox's own."""

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
    """What a sandbox has changed, to be looked at only."""
    stored: bool = True
    """The volume's owners are those of its disk, not yet the sandbox's own."""


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
            # A copy of the mount would keep it in use after its own installation let go of it.
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
        """Mount all that a program wants to find; the answer unmounts."""
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

        The layers are named by views of them in our own directory, so that no path of the host is
        in the sandbox's mount table. The overlay keeps its own clones of the views.
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
        """The name of a directory of ours that shows the source."""
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
    """Where pools of installations are mounted: images of btrfs, each beside its mount point."""
    lines = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    points = {fields[4] for fields in lines if fields[fields.index("-") + 1] == "btrfs"}
    return {each for each in map(_plain, points) if (Path(each).parent / "pool.img").exists()}


def _plain(point: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), point)
