"""Room for requests that are read to their end before they are sent, and how long that may take."""

from dataclasses import dataclass
from enum import Enum, auto
from weakref import WeakValueDictionary

MOST_OF_REQUEST = 32 << 20
"""What model APIs take at most."""
MOST_OF_SANDBOX = 2 * MOST_OF_REQUEST
MOST_IN_ALL = 8 * MOST_OF_REQUEST
"""Of one gateway: many sandboxes together do not take the host's memory."""
_PART = 2
"""Nobody gets more than one part in so many of what others have left: there is always some left."""


@dataclass(frozen=True, slots=True)
class Patience:
    """With who sends a request: room that is taken comes back."""

    silent_s: float = 30.0
    """Without a byte of it."""
    whole_s: float = 300.0
    """32 MiB come in that time over a slow link, too."""
    head_s: float = 30.0
    """From the first byte of a request's head or of a ClientHello to its last."""


class Full(Enum):
    """Who has no room left."""

    SANDBOX = auto()
    GATEWAY = auto()


class Room:
    """Of a sandbox, within that of its team, within that of all."""

    def __init__(self, most: int = MOST_IN_ALL, outer: "Room | None" = None) -> None:
        self._most = most
        self._outer = outer
        self._teams: WeakValueDictionary[str, Room] = WeakValueDictionary()
        self.taken = 0

    def of_team(self, team: str) -> "Room":
        """The same for all of its sandboxes."""
        return self._teams.setdefault(team, Room(outer=self))

    def of_sandbox(self) -> "Room":
        return Room(MOST_OF_SANDBOX, self)

    def lacks(self, size: int) -> Full | None:
        """Who has no room for so much more."""
        if self.taken + size > self._most:
            return Full.SANDBOX
        room: Room | None = self
        while room is not None:
            if room.taken + size > room._allowed:
                return Full.GATEWAY
            room = room._outer
        return None

    def change(self, size: int) -> None:
        """So much more, or less, is taken."""
        room: Room | None = self
        while room is not None:
            room.taken += size
            room = room._outer

    @property
    def _allowed(self) -> int:
        if self._outer is None:
            return self._most
        left = self._outer._allowed - (self._outer.taken - self.taken)
        return min(self._most, left // _PART)


class Share:
    """What one connection has of it."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._size = 0

    def hold(self, size: int) -> Full | None:
        """It is held in any case, until it is said that less is."""
        self._room.change(size - self._size)
        self._size = size
        return self._room.lacks(0)

    def lacks(self, size: int) -> Full | None:
        return self._room.lacks(size)
