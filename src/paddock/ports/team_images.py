"""Store the images that members have named: they count against their team's disk quota."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TeamImage:
    """An image on a provider that a team has named."""

    team_id: str
    provider: str
    reference: str
    size_bytes: int
    used_at: float


class TeamImages(Protocol):
    """An image that a team uses, counted once per team, provider and reference."""

    def get(self, team_id: str, provider: str, reference: str) -> TeamImage | None: ...

    def put(self, image: TeamImage) -> None:
        """Add it, or replace the earlier row."""
        ...

    def remove(self, image: TeamImage) -> None:
        """Absent is success."""
        ...

    def all(self) -> Sequence[TeamImage]:
        """Return the images of all teams."""
        ...
