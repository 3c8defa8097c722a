"""Limits as the SDK returns them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuotaInfo:
    """One limit of a team."""

    name: str
    limit: float | None
    """None means unlimited."""
    used: float | None
    """None for limits of single sandboxes and tasks."""
    own: bool
    """Whether it is set for this team. If not, the installation's settings apply."""
