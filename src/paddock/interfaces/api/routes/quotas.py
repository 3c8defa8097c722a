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
    """New limits. What is left out stays; null is what the installation's settings say."""

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
    limit: float | None = Field(description="null: there is none")
    used: float | None = Field(description="null where it is a limit of each sandbox or task")
    own: bool = Field(description="set for this team; otherwise the installation's setting holds")


class QuotaShape(Shape):
    """The limits of a team."""

    team_id: str
    team: str
    limits: list[LimitShape]


@router.get("")
async def get(given: Given, who: Who, team: str) -> QuotaShape:
    """Your team's, by name or id; of any team for admins of the operating team."""
    return _show(*await given.quotas.show(who, team))


@router.patch("")
async def change(given: Given, who: Who, team: str, wanted: ChangeQuota) -> QuotaShape:
    """Set limits, at once. For admins of the operating team.

    What a team has above a lowered limit stays; it creates nothing more until it is below.
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
