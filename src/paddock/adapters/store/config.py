"""What an operator may set for the store."""

from dataclasses import dataclass
from typing import Literal

from paddock.domain.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """How the database is used; where it is, is said when it is opened."""

    synchronous: Literal["normal", "full"] = "normal"
    """SQLite only. A crash of Paddock loses nothing with either. When the power goes, `normal` may
    lose the commits of the last moments, but never half of one; `full` loses none, and every commit
    then waits for the disk. PostgreSQL has its own setting, synchronous_commit."""
    exclusive: bool = False
    """SQLite only. Nobody else may open the file as long as this process has it, so that news need
    not be asked for. Without it any number of processes share it."""
    readers: int = 4
    """Reading threads on SQLite, reading connections on PostgreSQL. There is one for writing."""
    batch: int = 200
    """The most writes that are committed together."""
    queue: int = 10_000
    """The most writes that wait; one more is refused as Unavailable."""
    wait_s: float = 10.0
    """How long to wait for a connection, and for another process to end its transaction."""
    command_s: float = 30.0
    """How long a statement may take on PostgreSQL before its connection counts as lost."""

    def __post_init__(self) -> None:
        for name in ("readers", "batch", "queue", "wait_s", "command_s"):
            if getattr(self, name) <= 0:
                raise InvalidRequest(
                    f"{name} of the store is {getattr(self, name)}; it must be positive",
                    remediation=f"set {name} higher, or leave it out",
                )
