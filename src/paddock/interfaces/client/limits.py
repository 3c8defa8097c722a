"""What the SDK says of limits."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuotaInfo:
    """One limit of a team."""

    name: str
    limit: float | None
    """None where there is none."""
    used: float | None
    """None where it is a limit of each sandbox or task."""
    own: bool
    """Set for this team; otherwise the installation's setting holds."""
