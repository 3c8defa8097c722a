"""Volumes as ordinary directories: copied by sharing extents, or byte by byte."""

import os
import tempfile
from pathlib import Path

from paddock.adapters.providers.local.storage.faults import NotHere, explained
from paddock.adapters.providers.local.storage.ioctls import clone_file
from paddock.adapters.providers.local.storage.trees import (
    copy_tree,
    refuse_mounts,
    remove_tree,
    tree_bytes,
)
from paddock.adapters.providers.local.storage.volumes import (
    drafted,
    drafts_on_shelves,
    empty_upper,
    make_parts,
    make_shelves,
    set_aside,
)

_HOW = {"reflink": ("--reflink=always",), "copy": ("--reflink=auto", "--sparse=auto")}


class PlainStorage:
    """For hosts without btrfs. A copy costs time by the file; limits are not enforced."""

    enforces_disk_limit = False

    def __init__(self, pool: Path, name: str, notes: list[str]) -> None:
        self.name = name
        self.pool = pool
        self.notes = notes
        with explained(pool):
            pool.mkdir(parents=True, exist_ok=True)
            make_shelves(pool)

    def create(self, volume: Path, owner: int) -> None:
        with drafted(volume, remove_tree) as draft:
            draft.mkdir()
            make_parts(draft, owner)

    def clone(self, source: Path, target: Path) -> None:
        with drafted(target, remove_tree) as draft:
            source.lstat()
            copy_tree(source, draft, how=_HOW[self.name])
            for leftover in (draft / "work").iterdir():
                remove_tree(leftover)

    def delete(self, volume: Path) -> None:
        with explained(volume):
            refuse_mounts(volume)
            if os.path.lexists(volume):
                remove_tree(set_aside(volume))

    def empty(self, volume: Path) -> None:
        with explained(volume):
            empty_upper(volume)

    def set_limit(self, volume: Path, limit_bytes: int | None) -> None:
        """Nothing: this file system cannot limit a directory. The provider watches usage()."""

    def usage(self, volume: Path) -> int:
        """By walking the tree. Extents shared with other volumes count in full."""
        with explained(volume):
            return tree_bytes(volume)

    def sweep(self) -> list[Path]:
        abandoned = drafts_on_shelves(self.pool)
        for draft in abandoned:
            with explained(draft):
                remove_tree(draft)
        return abandoned

    def close(self, *, unmount: bool = False) -> None:
        """Nothing is held and nothing is mounted."""


def check_reflink(directory: Path) -> None:
    """Raise NotHere unless files in the directory can share their extents."""
    with (
        tempfile.TemporaryFile(dir=directory) as source,
        tempfile.TemporaryFile(dir=directory) as copy,
    ):
        source.write(os.urandom(4096))
        source.flush()
        try:
            clone_file(source.fileno(), copy.fileno())
        except OSError as error:
            raise NotHere(f"files cannot share extents there ({error.strerror})") from error
