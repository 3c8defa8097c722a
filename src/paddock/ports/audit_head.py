"""Where the end of the audit log is noted: apart from the log, whose end can be cut off."""

from dataclasses import dataclass, field
from typing import Protocol

from paddock.domain.audit import START, Head


@dataclass(frozen=True, slots=True)
class Noted:
    """How far the log was known to go."""

    head: Head = START
    at: float = 0.0
    lost: tuple[Head, ...] = field(default=())
    """Ends that were noted and are in the log no more."""
    told: str = ""
    """What was last told of it, so that a start does not tell it again."""


class AuditHead(Protocol):
    """What this server has noted."""

    def read(self) -> Noted | None:
        """None when nothing was, or when it cannot be made sense of any more."""
        ...

    def write(self, noted: Noted) -> None:
        """Whole or not at all. Unavailable when it cannot be."""
        ...
