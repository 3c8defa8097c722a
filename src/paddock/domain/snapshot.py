"""A sandbox's disk at one moment, and its memory where that can be kept too."""

from dataclasses import dataclass, field

from paddock.domain.ignoring import LeftOut, Whole


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """A plain handle; any process can make a sandbox of it."""

    provider: str
    id: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a snapshot."""

    ref: SnapshotRef
    key: str
    source: str
    """The reference of the sandbox it was taken of."""
    template: str
    created_at: float
    size_bytes: int | None = None
    memory: bool = False
    """Its processes were kept as well, and go on in a sandbox made of it."""
    ignore: tuple[str, ...] = ()
    """The rules by which it was taken."""
    left_out: LeftOut = field(default_factory=LeftOut)
    whole: Whole | None = None
    """Why everything is in it all the same."""
