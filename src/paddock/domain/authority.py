"""Who may override whom: of two who want different things, the higher rank counts."""

from enum import IntEnum

from paddock.domain.errors import Forbidden
from paddock.domain.team import Principal, Role

_OURS = "paddock/"
_READS_ALONG = "review"


class Rank(IntEnum):
    """From below: what a lower one has done, a higher one may undo, never the other way round."""

    NOBODY = 0
    RULE = 1
    """The guardian's."""
    REVIEWER = 2
    """A model that reads along."""
    MEMBER = 3
    ADMIN = 4


def rank_of(principal: Principal) -> Rank:
    """Of who acts. A part of Paddock acts for an admin, and counts as a rule."""
    if principal.actor.startswith(_OURS):
        return Rank.RULE
    return Rank.ADMIN if principal.role is Role.ADMIN else Rank.MEMBER


def rank_of_rule(rule: str) -> Rank:
    return Rank.REVIEWER if rule == _READS_ALONG else Rank.RULE


def check_outranks(principal: Principal, held_by: Rank, what: str) -> None:
    """Forbidden for who is of a lower rank than whoever had the last word."""
    if rank_of(principal) >= held_by:
        return
    raise Forbidden(
        f"{what} by an {held_by.name.lower()}, and this token has the role {principal.role}",
        remediation=f"ask an {held_by.name.lower()} of the team",
    )
