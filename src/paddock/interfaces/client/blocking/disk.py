"""What is kept of a sandbox's disk: as a snapshot, to return to, or as an archive.

Written by scripts/blocking.py; do not edit.
"""

from paddock.interfaces.client.disk import AsyncDisk
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.results import SnapshotInfo


class Disk:
    """The disk of one sandbox."""

    _inner: AsyncDisk

    def __init__(self, inner: AsyncDisk) -> None:
        self._inner = inner

    def snapshot(
        self,
        name: str = "",
        *,
        memory: bool = False,
        keep: float | None = None,
        everything: bool = False,
        replace: bool = False,
    ) -> SnapshotInfo:
        """Keep its disk as it is now, also while it runs; for so many seconds, or until deleted.
        What the template's rules name is left out, unless everything is asked for. One of the same
        name is a conflict, or replaced: it goes when the new one is there."""
        return portal().run(
            self._inner.snapshot(
                name, memory=memory, keep=keep, everything=everything, replace=replace
            )
        )

    def restore(self, snapshot: str) -> None:
        """Give it the disk of a snapshot, by id or name; it runs afterwards, under the same id and
        name. What it has now is kept as an automatic snapshot."""
        portal().run(self._inner.restore(snapshot))

    def archive(self) -> None:
        """Keep the disk of a stopped one as a compressed copy, until `start` brings it back. It
        takes time by the disk's size, and may be repeated."""
        portal().run(self._inner.archive())
