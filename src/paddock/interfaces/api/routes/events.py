"""`/v1/events` and `/v1/audit`: what happened, and who did it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import InvalidRequest
from paddock.domain.event import CUSTOM_KIND, Event, EventKind
from paddock.domain.team import Principal, Scope
from paddock.interfaces.api import streams
from paddock.interfaces.api.context import Given, Services, Who
from paddock.interfaces.api.errors import request_id
from paddock.interfaces.api.paging import ByNumber
from paddock.interfaces.api.schemas.common import ListOf, Shape, at, paged
from paddock.interfaces.api.streams import Format
from paddock.ports.store import Transaction
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


class Acting(Shape):
    """The person who acted."""

    id: str
    name: str = Field(description="as it is now; empty when they were forgotten")


class AuditShape(Shape):
    """One act of somebody, with its place in the chain."""

    seq: int
    at: datetime
    at_seconds: float
    team_id: str
    actor: str
    person: Acting | None
    action: str
    subject: str
    detail: dict[str, Any]
    previous: str
    hash: str
    seal: str = Field(description="of the detail; it is what the hash is of")
    salt: str = Field(description="empty when the detail was taken out")


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
    place = _place(page.after)
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


@router.get("/audit")
async def audit(given: Given, who: Who, page: ByNumber) -> ListOf[AuditShape]:
    """Who did what in the team, oldest first."""
    who.require(Scope.AUDIT_READ)
    found, names = await _entries(given, who, _place(page.after), page.limit)
    return paged(
        found, page.limit - 1, lambda each: _show_entry(each, names), lambda each: each.seq
    )


@router.get(
    "/audit/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}}},
)
async def export(request: Request, given: Given, who: Who) -> StreamingResponse:
    """The team's whole audit log, one entry a line."""
    who.require(Scope.AUDIT_READ)

    async def lines() -> AsyncIterator[bytes]:
        place = 0
        while True:
            found, names = await _entries(given, who, place, 500)
            shown = (_show_entry(entry, names).model_dump_json() for entry in found)
            yield "".join(f"{line}\n" for line in shown).encode()
            if len(found) < 500:
                return
            place = found[-1].seq

    body = streams.attended(lines(), given.access.stays.stay(who))
    return StreamingResponse(body, media_type="application/x-ndjson")


async def _entries(
    given: Services, who: Principal, place: int, limit: int
) -> tuple[Sequence[AuditEntry], Mapping[str, str]]:
    """With the names of the people in them, which are not in the chain: that is for ever."""

    def look(tx: Transaction) -> tuple[Sequence[AuditEntry], Mapping[str, str]]:
        found = tx.audit.after(place, limit, team_id=who.team_id)
        return found, tx.people.named(sorted({_holder(entry) for entry in found}))

    return await given.store.read(look)


async def place_to_follow(given: Services, last_event_id: str, after: int | None) -> int:
    """Where a stream of events begins: after the last one that was told, or now."""
    place = _place(last_event_id) if last_event_id else after
    if place is None:
        return await given.events.last_seq()
    await _check_within(given, place)
    return place


def _holder(entry: AuditEntry) -> str:
    return entry.actor.partition("/")[0]


def _place(cursor: str) -> int:
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


def _show_entry(entry: AuditEntry, names: Mapping[str, str]) -> AuditShape:
    holder = _holder(entry)
    return AuditShape(
        seq=entry.seq,
        at=at(entry.at),
        at_seconds=entry.at,
        team_id=entry.team_id,
        actor=entry.actor,
        person=Acting(id=holder, name=names[holder]) if holder in names else None,
        action=entry.action,
        subject=entry.subject,
        detail=dict(entry.detail),
        previous=entry.previous,
        hash=entry.hash,
        seal=entry.seal,
        salt=entry.salt,
    )
