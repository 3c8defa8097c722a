"""What is in a volume, for who has no sandbox that mounts it."""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class EntryKind(StrEnum):
    """What an entry is."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class VolumeEntry:
    """A file, a directory or a link. Owners are those that a sandbox sees."""

    name: str
    path: str
    kind: EntryKind
    size: int
    mode: int
    uid: int
    gid: int
    accessed_at: float
    modified_at: float
    changed_at: float
    target: str = ""
    """Where a link points to, as it says itself."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """What an entry shall have; None leaves it, or gives it to the user of sandboxes."""

    uid: int | None = None
    gid: int | None = None
    mode: int | None = None


class VolumeFiles(Protocol):
    """The files of one volume.

    Paths begin at its root, with or without a `/`. Sandboxes write there at the same time and are
    not to be trusted: no link leads out of the volume, wherever it points to. What is not there is
    NotFound, a path through a file InvalidRequest.
    """

    async def used_bytes(self) -> int: ...

    async def stat(self, path: str) -> VolumeEntry:
        """Of the entry itself, also when it is a link."""
        ...

    async def list(self, path: str, depth: int = 1) -> Sequence[VolumeEntry]:
        """What is in a directory, each directory before what is in it, sorted by name."""
        ...

    async def make_dir(
        self, path: str, wanted: Attributes, *, parents: bool = False
    ) -> VolumeEntry:
        """Conflict when there is something; with `parents` an existing directory is success."""
        ...

    async def change(self, path: str, wanted: Attributes) -> VolumeEntry: ...

    async def remove(self, path: str) -> None:
        """With everything in it; InvalidRequest for the root."""
        ...

    async def read(self, path: str) -> tuple[int, AsyncIterator[bytes]]:
        """How long it is, and its content."""
        ...

    async def write(
        self, path: str, content: AsyncIterable[bytes], wanted: Attributes, *, force: bool = False
    ) -> VolumeEntry:
        """Whole or not at all. With `force` directories that are missing are made."""
        ...
