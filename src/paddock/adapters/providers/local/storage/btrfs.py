"""Volumes as btrfs subvolumes: a copy is one request to the kernel, whatever its size."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from paddock.adapters.providers.local.storage import ioctls
from paddock.adapters.providers.local.storage.faults import NotHere, explained
from paddock.adapters.providers.local.storage.programs import is_stopped, leave_to_itself
from paddock.adapters.providers.local.storage.quotas import Quotas
from paddock.adapters.providers.local.storage.trees import copy_tree, remove_tree, tree_bytes
from paddock.adapters.providers.local.storage.volumes import (
    draft_name,
    drafted,
    drafts_on_shelves,
    empty_upper,
    is_draft,
    make_parts,
    make_shelves,
    set_aside,
)

_SHORT_OF_SPACE = 0.1


class BtrfsStorage:
    """One subvolume per volume, on a file system of ours or of the host's.

    With simple quotas a block counts for the volume that wrote it, until nobody uses it any more.
    So a clone starts at nothing and its limit is for what it adds; and what a snapshot keeps goes
    on counting for the volume it was taken of. With classic quotas everything a volume refers to
    counts, shared or not.
    """

    name = "btrfs"

    def __init__(
        self,
        pool: Path,
        quotas: Quotas,
        notes: list[str],
        release: Callable[[], None] | None = None,
    ) -> None:
        self.pool = pool
        self.notes = notes
        self.enforces_disk_limit = quotas.enforced
        self._quotas = quotas
        self._release = release
        with explained(pool):
            make_shelves(pool)

    def create(self, volume: Path, owner: int) -> None:
        with drafted(volume, self._discard) as draft:
            with ioctls.opened(draft.parent) as parent:
                ioctls.create_subvolume(parent, draft.name)
            self._track(draft)
            make_parts(draft, owner)

    def clone(self, source: Path, target: Path) -> None:
        with drafted(target, self._discard) as draft:
            with ioctls.opened(source) as original, ioctls.opened(draft.parent) as parent:
                if is_subvolume(source):
                    ioctls.snapshot(original, parent, draft.name)
                else:  # made by another driver, before the host's btrfs was used as such
                    ioctls.create_subvolume(parent, draft.name)
                    copy_tree(source, draft, how=("--reflink=auto",))
            self._track(draft)
            for leftover in (draft / "work").iterdir():
                remove_tree(leftover)

    def delete(self, volume: Path) -> None:
        """The kernel takes it apart later, within half a minute; at once when space is short."""
        with explained(volume):
            self._discard(volume)
            disk = os.statvfs(self.pool)
            if disk.f_bavail < disk.f_blocks * _SHORT_OF_SPACE:
                with ioctls.opened(self.pool) as directory:
                    ioctls.sync_filesystem(directory)

    def empty(self, volume: Path) -> None:
        with explained(volume), ioctls.opened(volume) as directory:
            if is_subvolume(volume):
                _destroy_nested(directory, ioctls.subvolume_id(directory))
            empty_upper(volume)

    def set_limit(self, volume: Path, limit_bytes: int | None) -> None:
        """Nothing where quotas are off, as `enforces_disk_limit` says."""
        with explained(volume), ioctls.opened(volume) as directory:
            self._quotas.limit(directory, ioctls.subvolume_id(directory), limit_bytes)

    def usage(self, volume: Path) -> int:
        """What the volume has written and not freed; without quotas, the size of its files."""
        with explained(volume), ioctls.opened(volume) as directory:
            used = self._quotas.usage(ioctls.subvolume_id(directory))
            return tree_bytes(volume) if used is None else used

    def sweep(self) -> list[Path]:
        abandoned = drafts_on_shelves(self.pool)
        for draft in abandoned:
            self.delete(draft)
        with explained(self.pool):
            self._quotas.prune()
            # On a shelf, so that the next sweep removes what a crash leaves.
            _use_ids_up_to(self._quotas.highest_stale_id(), self.pool / "volumes")
        return abandoned

    def close(self, *, unmount: bool = False) -> None:
        """Conflict when it shall be unmounted and a volume is in use. The host's own stays."""
        if unmount and self._release:
            self._release()

    def _track(self, volume: Path) -> None:
        with ioctls.opened(volume) as directory:
            self._quotas.track(directory, ioctls.subvolume_id(directory))

    def _discard(self, volume: Path) -> None:
        if not os.path.lexists(volume):
            return
        if is_subvolume(volume):
            self._drop(volume)
            return
        trash = set_aside(volume)
        if trash.is_dir():
            for inner in filter(is_subvolume, list(trash.iterdir())):  # a template's seed
                self._destroy(inner)
        remove_tree(trash)

    def _drop(self, volume: Path) -> None:
        """The kernel first forgets each file that it has in mind, which may take seconds: whoever
        is in a hurry leaves that to a program, and the qgroup to the next sweep."""
        if is_stopped() and is_draft(trash := set_aside(volume)):
            leave_to_itself(["btrfs", "subvolume", "delete", str(trash)])
        else:
            self._destroy(volume)

    def _destroy(self, volume: Path) -> None:
        with ioctls.opened(volume.parent) as parent:
            with ioctls.opened(volume) as directory:
                subvolume = ioctls.subvolume_id(directory)
                with suppress(OSError):
                    ioctls.clear_protection(directory)
                nested = _destroy_nested(directory, subvolume)
            ioctls.destroy_subvolume(parent, volume.name)
            self._quotas.forget(parent, subvolume, nested)


def is_subvolume(path: Path) -> bool:
    return path.lstat().st_ino == ioctls.FIRST_FREE_OBJECTID and path.is_dir()


def check_subvolumes(directory: Path) -> None:
    """Raise NotHere unless we may make and destroy subvolumes in the directory."""
    name = draft_name()
    with ioctls.opened(directory) as parent:
        try:
            ioctls.create_subvolume(parent, name)
            ioctls.destroy_subvolume(parent, name)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOTTY, errno.EROFS):
                raise
            raise NotHere(f"subvolumes cannot be made there ({error.strerror})") from error


def _use_ids_up_to(last: int, directory: Path) -> None:
    """Create and destroy subvolumes until one has the id `last` or a higher one.

    After a mount, btrfs reuses the ids of destroyed subvolumes. Their groups may still exist and
    count blocks that clones share.
    """
    name, used = draft_name(), 0
    with ioctls.opened(directory) as parent:
        while used < last:
            ioctls.create_subvolume(parent, name)
            with ioctls.opened(directory / name) as subvolume:
                used = ioctls.subvolume_id(subvolume)
            ioctls.destroy_subvolume(parent, name)


def _destroy_nested(filesystem: int, subvolume: int) -> list[int]:
    """Destroy nested subvolumes, including read-only ones, and return their IDs.

    Sandboxes cannot create subvolumes. In older versions, root in a sandbox could.
    """
    found: list[tuple[int, ioctls.Nested]] = []
    waiting = [subvolume]
    while waiting:
        outer = waiting.pop()
        for inner in ioctls.nested_subvolumes(filesystem, outer):
            with ioctls.opened_by_id(filesystem, inner.id) as root:
                ioctls.make_writable(root)
            found.append((outer, inner))
            waiting.append(inner.id)
    for outer, inner in reversed(found):  # inner ones first
        with ioctls.opened_by_id(filesystem, outer, inner.directory) as directory:
            ioctls.destroy_subvolume(directory, inner.name)
    return [inner.id for _, inner in found]
