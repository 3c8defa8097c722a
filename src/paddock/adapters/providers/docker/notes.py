"""Why a sandbox was stopped.

A note is written before the container ends and means nothing while it runs, so a control plane that
dies in between leaves nothing wrong.
"""

from dataclasses import dataclass

from paddock.domain.reason import Reason


@dataclass(frozen=True, slots=True)
class Note:
    """Why, and for people what led to it."""

    reason: Reason
    detail: str = ""
    container: str = ""
