"""Which part of a list is asked for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list: at most `limit` rows after the one that `after` names."""

    limit: int = 50
    after: str = ""
