"""What was made in a sandbox since the work began, and where several have made the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Work:
    """Where in a sandbox the work is, and what it began with."""

    directory: str = "project"
    """A git work tree, in the user's home or absolute."""
    base: str = ""
    """The tree or commit that is safe elsewhere; empty is where the clone's branch began."""


class ChangeKind(StrEnum):
    """What became of a file."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Change:
    """One file that is not as it was. The blob is the id of its content; empty when removed."""

    path: str
    kind: ChangeKind
    mode: str = ""
    blob: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """Everything that differs from the base, committed or not; ignored files do not count."""

    work: Work
    tree: str
    """The id of all of it; what is kept elsewhere under this id is safe."""
    changes: tuple[Change, ...]
    truncated: bool = False
    """There are more changes than are told."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """A file that was edited in more than one sandbox."""

    path: str
    edits: Mapping[str, Change]
    """By sandbox."""

    @property
    def is_same(self) -> bool:
        """Everybody made the same of it."""
        return len({(edit.mode, edit.blob) for edit in self.edits.values()}) == 1


def overlaps(changes: Mapping[str, Sequence[Change]]) -> list[Overlap]:
    """The files that several sandboxes have edited, by path."""
    edits: dict[str, dict[str, Change]] = {}
    for sandbox, mine in changes.items():
        for change in mine:
            edits.setdefault(change.path, {})[sandbox] = change
    return [Overlap(path, found) for path, found in sorted(edits.items()) if len(found) > 1]
