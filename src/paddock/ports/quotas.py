"""Store quotas of teams, and compute their usage."""

from typing import Protocol

from paddock.domain.quota import Limits, QuotaName, Usage

INSTALLATION = ""
"""Used as a team's ID: limits that apply to every team without its own."""


class Quotas(Protocol):
    """Limits and usage, consistent within one transaction."""

    def limits(self, team_id: str) -> Limits:
        """Return the limits set for this team, without the installation's."""
        ...

    def in_force(self, team_id: str) -> Limits:
        """Return the limits that apply: the team's own, then the installation's."""
        ...

    def put(self, team_id: str, limits: Limits) -> None: ...

    def reset(self, team_id: str, names: frozenset[QuotaName]) -> None:
        """Remove limits, so that the installation's apply again. Absent is success."""
        ...

    def usage(self, team_id: str) -> Usage: ...

    def stored(self, team_id: str, subject: str = "") -> int:
        """Return the stored bytes of events and output: of a sandbox or task, or of the team."""
        ...

    def build_file_bytes(self, team_id: str) -> int:
        """Return the size of all files that the team uploaded for builds."""
        ...

    def put_build_file(self, team_id: str, digest: str, size: int, at: float) -> None:
        """Record an uploaded file, replacing an earlier record."""
        ...

    def forget_build_files(self, team_id: str, before: float) -> None:
        """Remove the records of files last used before this time."""
        ...

    def remove_build_file(self, team_id: str, digest: str) -> None:
        """Absent is success."""
        ...
