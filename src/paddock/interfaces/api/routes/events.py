"""`/v1/events`: what happened."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from paddock.domain.errors import InvalidRequest
from paddock.domain.event import CUSTOM_KIND, Event, EventKind
from paddock.domain.team import Scope
from paddock.interfaces.api import streams
from paddock.interfaces.api.context import Given, Services, Who
from paddock.interfaces.api.errors import request_id
from paddock.interfaces.api.paging import ByNumber
from paddock.interfaces.api.schemas.common import ListOf, Shape, at, paged
from paddock.interfaces.api.streams import Format
from paddock.services.events import Interest

router = APIRouter(prefix="/v1", tags=["events"])


Kind = EventKind | Annotated[str, Field(pattern=f"^{CUSTOM_KIND}$")]


class EventShape(Shape):
    """One thing that happened."""

    seq: int
    kind: Kind
    subject: str
    at: datetime
    actor: str
    data: dict[str, Any]


Subject = Annotated[str, Query(max_length=64, description="the id of what it happened to")]
Kinds = Annotated[list[Kind] | None, Query()]
App = Annotated[
    str,
    Query(max_length=63, description="of this app: its sandboxes, their snapshots, its secrets"),
]


@router.get("/events")
async def list_events(
    given: Given,
    who: Who,
    page: ByNumber,
    *,
    subject: Subject = "",
    kind: Kinds = None,
    app: App = "",
) -> ListOf[EventShape]:
    """The team's events, oldest first."""
    who.require(Scope.EVENTS_READ)
    interest = Interest(who.team_id, subject, frozenset(kind or ()), app)
    place = place_of(page.after)
    found = await given.events.page(interest, place, page.limit)
    if not found:
        await _check_within(given, place)
    return paged(found, page.limit - 1, _show, lambda event: event.seq)


@router.get(
    "/events/stream",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {}, "application/x-ndjson": {}}},
    },
)
async def follow(
    request: Request,
    given: Given,
    who: Who,
    *,
    subject: Subject = "",
    kind: Kinds = None,
    app: App = "",
    after: Annotated[
        int | None, Query(ge=0, description="from this event on; from now unless said")
    ] = None,
    last_event_id: Annotated[str, Header(max_length=20)] = "",
    form: Annotated[Format, Query(alias="format")] = Format.SSE,
) -> StreamingResponse:
    """The team's events as they happen; `Last-Event-ID` resumes without a gap."""
    who.require(Scope.EVENTS_READ)
    place = await place_to_follow(given, last_event_id, after)
    interest = Interest(who.team_id, subject, frozenset(kind or ()), app)
    body = streams.of_events(given.events.follow(interest, place), form, place)
    staying = given.access.stays.stay(who)
    return streams.response(
        body, form, request_id=request_id(request), staying=staying, place=place
    )


async def place_to_follow(given: Services, last_event_id: str, after: int | None) -> int:
    """Where a stream of events begins: after the last one that was told, or now."""
    place = place_of(last_event_id) if last_event_id else after
    if place is None:
        return await given.events.last_seq()
    await _check_within(given, place)
    return place


def place_of(cursor: str) -> int:
    if not cursor:
        return 0
    if cursor.isascii() and cursor.isdigit() and len(cursor) < 19:
        return int(cursor)
    raise InvalidRequest(
        f"{cursor[:40]!r} is no place in the log",
        remediation="use the number of an event, as in next_cursor",
    )


async def _check_within(given: Services, place: int) -> None:
    """Who waits beyond the end would wait for events that they have never heard of, silently."""
    if place > await given.events.last_seq():
        # Where it ends is not said: the numbers are those of all teams.
        raise InvalidRequest(
            f"event {place} is beyond the end of the log",
            remediation="was the server's database restored? Read on from `after=0`, or without a "
            "place from now on",
        )


def _show(event: Event) -> EventShape:
    return EventShape(
        seq=event.seq,
        kind=event.kind,
        subject=event.subject,
        at=at(event.at),
        actor=event.actor,
        data=dict(event.data),
    )
