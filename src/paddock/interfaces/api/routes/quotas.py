"""`/v1/teams/{team}/quota`: how much a team may have, and how much of it is used."""

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field

from paddock.domain.quota import QuotaName
from paddock.domain.team import Team
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.schemas.common import Shape
from paddock.services.quotas import QuotaState

router = APIRouter(prefix="/v1/teams/{team}/quota", tags=["access"])
_UNLIMITED = "unlimited"
Whole = Annotated[int, Field(ge=0)] | Literal["unlimited"] | None
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["unlimited"] | None


class ChangeQuota(Shape):
    """New limits. Omitted limits stay; null resets a limit to the installation's settings."""

    sandboxes: Whole = None
    cpus: Number = None
    memory_mib: Whole = None
    disk_mib: Whole = None
    tasks: Whole = None
    events_mib: Whole = None
    sandbox_events_mib: Whole = None


class LimitShape(Shape):
    """One limit."""

    name: QuotaName
    limit: float | None = Field(description="null: unlimited")
    used: float | None = Field(description="null for limits of single sandboxes and tasks")
    own: bool = Field(description="whether it is set for this team; if not, the settings apply")


class QuotaShape(Shape):
    """The limits of a team."""

    team_id: str
    team: str
    limits: list[LimitShape]


@router.get("")
async def get(given: Given, who: Who, team: str) -> QuotaShape:
    """Get your team's quota, by name or id. Admins of the operating team can get any team's."""
    return _show(*await given.quotas.show(who, team))


@router.patch("")
async def change(given: Given, who: Who, team: str, wanted: ChangeQuota) -> QuotaShape:
    """Set limits, with immediate effect. For admins of the operating team.

    If the usage is above a lowered limit, nothing is removed, and nothing more can be created.
    """
    said = {QuotaName(name): getattr(wanted, name) for name in wanted.model_fields_set}
    limits = {k: None if v == _UNLIMITED else v for k, v in said.items() if v is not None}
    reset = [name for name, value in said.items() if value is None]
    return _show(*await given.quotas.change(who, team, limits, reset))


def _show(team: Team, states: Sequence[QuotaState]) -> QuotaShape:
    return QuotaShape(
        team_id=team.id,
        team=team.name,
        limits=[
            LimitShape(name=each.name, limit=each.most, used=each.used, own=each.is_own)
            for each in states
        ],
    )
