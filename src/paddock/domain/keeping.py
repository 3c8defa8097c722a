"""Which snapshots are taken by themselves, and which are let go."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from paddock.domain.errors import InvalidRequest
from paddock.domain.lifetime import DAY
from paddock.domain.records import SnapshotRecord


class Kind(StrEnum):
    """Who wanted a snapshot."""

    AUTOMATIC = "automatic"
    """Paddock: before something destructive, or of a sandbox that idles."""
    MANUAL = "manual"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Keeping:
    """What Paddock does by itself. Seconds; None is never."""

    idle_after_s: float | None = DAY
    """A sandbox in which nothing was done for so long is kept as a snapshot, once."""
    kept_s: float = 7 * DAY
    """So long an automatic one is there."""
    most: float = 10
    """So many automatic ones of a sandbox, the newest."""
    before_delete: bool = False
    """A sandbox that is deleted is kept first."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """What somebody wants to be let go: what is older, beyond the newest so many."""

    older_than_s: float | None = None
    keep_last: float | None = None
    """Of each sandbox."""
    kind: Kind = Kind.AUTOMATIC

    def __post_init__(self) -> None:
        if self.older_than_s is None and self.keep_last is None:
            raise InvalidRequest(
                "it was not said which snapshots shall go",
                remediation="say how old they are, how many of each sandbox to keep, or both",
            )


def is_due(keeping: Keeping, active_at: float, taken_at: float | None, now: float) -> bool:
    """Whether an idle sandbox is to be kept now: once for every time that it was active."""
    if keeping.idle_after_s is None or now - active_at < keeping.idle_after_s:
        return False
    return taken_at is None or taken_at < active_at


def outgrown(
    snapshots: Sequence[SnapshotRecord], pruning: Pruning, now: float
) -> list[SnapshotRecord]:
    """Of one sandbox's, newest first: those that go. Both limits have to allow it."""
    wanted = [each for each in snapshots if _is(each, pruning.kind)]
    return [
        each
        for number, each in enumerate(wanted)
        if (pruning.keep_last is None or number >= pruning.keep_last)
        and (pruning.older_than_s is None or now - each.created_at >= pruning.older_than_s)
    ]


def _is(snapshot: SnapshotRecord, kind: Kind) -> bool:
    return kind is Kind.ALL or snapshot.automatic is (kind is Kind.AUTOMATIC)
