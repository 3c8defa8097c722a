"""`/v1/sandboxes/{sandbox}/history`: the course of a sandbox, for people."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from paddock.domain.history import Step
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.paging import MAX_PAGE
from paddock.interfaces.api.routes.events import Kind
from paddock.interfaces.api.schemas.common import Shape, at
from paddock.services.history import Place

router = APIRouter(prefix="/v1/sandboxes/{sandbox}", tags=["events"])
_LATEST = (1 << 62) - 1


class StepShape(Shape):
    """One thing that happened, or several that are the same."""

    kind: Kind
    at: datetime
    until: datetime = Field(description="of the last of them; of a command, when it ended")
    count: int = Field(description="so many events are in it")
    quiet: bool = Field(description="it only says that all goes on")
    after_s: float = Field(description="since the step before it")
    actor: str
    data: dict[str, Any] = Field(description="of the last one; of a command also how it ended")
    first_seq: int
    last_seq: int


class HistoryShape(Shape):
    """Some steps in the order in which they happened, and where there are more."""

    items: list[StepShape]
    older: int | None = Field(description="ask with `before` for the steps before these")
    newer: int | None = Field(description="ask with `after` for the steps after these")


@router.get("/history")
async def history(
    given: Given,
    who: Who,
    *,
    sandbox: str,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    after: Annotated[int, Query(ge=0, le=_LATEST, description="from this event on")] = 0,
    before: Annotated[
        int | None, Query(ge=0, le=_LATEST, description="the last steps before this event")
    ] = None,
    quiet: Annotated[bool, Query(description="also what only says that all goes on")] = True,
    command: Annotated[str, Query(max_length=64, description="of this command only")] = "",
) -> HistoryShape:
    """Events as steps: what is periodic or repeats is counted, commands have their end with them.

    From the beginning unless said; `before` reads backwards, page by page.
    """
    found = await given.history.read(who, sandbox, Place(limit, after, before), command)
    steps = [_show(step) for step in found.steps if quiet or not step.quiet]
    return HistoryShape(items=steps, older=found.older, newer=found.newer)


def _show(step: Step) -> StepShape:
    return StepShape(
        kind=step.kind,
        at=at(step.at),
        until=at(step.until),
        count=step.count,
        quiet=step.quiet,
        after_s=round(step.after_s, 3),
        actor=step.actor,
        data=dict(step.data),
        first_seq=step.first_seq,
        last_seq=step.last_seq,
    )
