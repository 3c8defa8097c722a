"""Where quotas of teams and what they are measured by are kept."""

from typing import Protocol

from paddock.domain.quota import Limits, QuotaName, Usage

INSTALLATION = ""
"""In place of a team: what holds for every team that has no limit of its own."""


class Quotas(Protocol):
    """Limits, and what counts against them. All of one moment: nothing is added meanwhile."""

    def limits(self, team_id: str) -> Limits:
        """Those that were set for it, without the installation's."""
        ...

    def in_force(self, team_id: str) -> Limits:
        """Its own, and the installation's for what it has none of."""
        ...

    def put(self, team_id: str, limits: Limits) -> None: ...

    def reset(self, team_id: str, names: frozenset[QuotaName]) -> None:
        """The installation's hold again. Absent is success."""
        ...

    def usage(self, team_id: str) -> Usage: ...

    def stored(self, team_id: str, subject: str = "") -> int:
        """Bytes of stored events and output of one sandbox or task; of all unless one is named."""
        ...

    def build_file_bytes(self, team_id: str) -> int:
        """Of all that were handed in for builds."""
        ...

    def put_build_file(self, team_id: str, digest: str, size: int, at: float) -> None:
        """Instead of what is on record of it, if anything is."""
        ...

    def forget_build_files(self, team_id: str, before: float) -> None:
        """Those that were last used before."""
        ...

    def remove_build_file(self, team_id: str, digest: str) -> None:
        """Absent is success."""
        ...
