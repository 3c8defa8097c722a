"""Mounts that only the launcher sees: overlay roots and id-mapped template layers."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from paddock.adapters.providers.host import syscalls

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

    @property
    def attributes(self) -> int:
        kept = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV
        kept |= syscalls.MOUNT_ATTR_RDONLY if self.read_only else 0
        return kept | (syscalls.MOUNT_ATTR_NOEXEC if self.noexec else 0)


@dataclass
class Mounter:
    """Keeps one id-mapped view of every template layer that is in use."""

    directory: Path
    mapped: dict[tuple[str, int], str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    @classmethod
    def in_private_namespace(cls, directory: str) -> "Mounter":
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_SLAVE)
        with contextlib.suppress(OSError):
            # crun refuses to work where cgroup v1 and v2 are mounted side by side.
            syscalls.umount(_UNIFIED, syscalls.MNT_DETACH)
        Path(directory).mkdir(parents=True, exist_ok=True)
        # Mount points of one's own, which nobody has to tidy up.
        syscalls.mount("tmpfs", directory, "tmpfs", 0, "mode=0711,size=1m")
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

    def show_mapped(self, lower: str, first_id: int, ids: int) -> None:
        """Make `lower` appear with its owners shifted to `first_id`; once per layer."""
        known = self.mapped.get((lower, first_id))
        if known is not None:
            if os.path.samestat(os.stat(known), os.stat(lower)):
                return
            self.forget(lower)  # another process has removed the layer, and made it anew
        target = self.directory / f"lower-{next(self._numbers)}"
        target.mkdir(parents=True)
        try:
            with user_namespace(first_id, ids) as namespace:
                syscalls.mount_bind(lower, str(target), 0, namespace)
        except OSError:
            target.rmdir()
            raise
        self.mapped[lower, first_id] = str(target)

    def forget(self, lower: str) -> None:
        """Let go of a layer that is about to be removed; one that was never shown is success."""
        for key in [key for key in self.mapped if key[0] == lower]:
            target = self.mapped.pop(key)
            syscalls.umount(target, syscalls.MNT_DETACH)
            Path(target).rmdir()

    def mount_overlay(
        self, lowers: list[str], volume: str, target: str, *, first_id: int | None, above: str = ""
    ) -> Callable[[], None]:
        """Mount a sandbox's root, the uppermost of the lower layers first; the answer unmounts.

        `above` is what a sandbox has changed, to be looked at only. Its owners are shifted already.
        """
        if first_id is not None:
            lowers = [self.mapped[lower, first_id] for lower in lowers]
        layers = ":".join(_escape(lower) for lower in ([above] if above else []) + lowers)
        changed = f"upperdir={_escape(volume)}/upper,workdir={_escape(volume)}/work"
        # No index and no inode numbers across layers: the copy of a volume is mounted elsewhere.
        options = f"lowerdir={layers},{changed},index=off,xino=off,metacopy=off"
        syscalls.mount("overlay", target, "overlay", 0, options)
        return lambda: syscalls.umount(target, syscalls.MNT_DETACH)

    def mount_binds(self, binds: Iterable[Bind]) -> Callable[[], None]:
        """Show each source at its target; the answer unmounts."""
        with contextlib.ExitStack() as mounted:
            for bind in binds:
                syscalls.mount_bind(bind.source, bind.target, bind.attributes)
                mounted.callback(syscalls.umount, bind.target, syscalls.MNT_DETACH)
            return mounted.pop_all().close


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


@contextlib.contextmanager
def user_namespace(first_id: int, ids: int) -> Iterator[int]:
    """A descriptor of a user namespace that maps 0 to `first_id`; nobody lives in it."""
    namespace = _make_user_namespace(first_id, ids)
    try:
        yield namespace
    finally:
        os.close(namespace)


def _make_user_namespace(first_id: int, ids: int) -> int:
    ready_read, ready_write = os.pipe()
    done_read, done_write = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            os.write(ready_write, b"+")
            os.close(done_write)
            os.read(done_read, 1)
        os._exit(0)
    os.close(ready_write)
    os.close(done_read)
    try:
        if os.read(ready_read, 1) != b"+":
            raise OSError("this kernel refused a user namespace")
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{kind}").write_text(f"0 {first_id} {ids}\n")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready_read)
        os.close(done_write)
        os.waitpid(child, 0)
