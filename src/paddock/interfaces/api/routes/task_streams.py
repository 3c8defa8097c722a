"""`/v1/tasks/{task}`, what comes in a stream: its events, what its agent wrote, what it changed."""

import base64
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from paddock.domain.event import Event, EventKind
from paddock.domain.team import Principal
from paddock.interfaces.api import streams
from paddock.interfaces.api.context import Given, Services, Who
from paddock.interfaces.api.errors import request_id
from paddock.interfaces.api.routes.events import place_to_follow
from paddock.interfaces.api.streams import Format
from paddock.ports.tasks import Output
from paddock.services.events import Interest
from paddock.services.task_reading import MOST_RAW

router = APIRouter(prefix="/v1/tasks/{task}", tags=["tasks"])
ENDS = frozenset({EventKind.TASK_COMPLETED, EventKind.TASK_FAILED, EventKind.TASK_CANCELLED})
_PAGE = 500
_AT_ONCE = 16  # pieces of output in memory, each at most as long as a read of it
_SAFE = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
_STREAMS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}, "application/x-ndjson": {}}},
    204: {"description": "it is over, and all of it was told"},
}
_CUT: dict[str, Any] = {
    "X-Paddock-Cut": {
        "description": "`true` when it is longer than what is here",
        "required": True,
        "schema": {"type": "string"},
    }
}
_OUTPUT: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/plain": {"schema": {"type": "string"}}, "application/x-ndjson": {}},
        "headers": _CUT,
    }
}
_DIFF: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "as `git apply` takes it",
        "content": {"text/x-diff": {"schema": {"type": "string"}}},
        "headers": _CUT,
    }
}


class OutputFormat(StrEnum):
    """How an agent's output is shown."""

    PLAIN = "plain"
    """As it wrote it, one run after the other."""
    NDJSON = "ndjson"
    """With the run and the offset of each piece."""


@router.get("/events", response_class=StreamingResponse, responses=_STREAMS)
async def events(
    request: Request,
    given: Given,
    who: Who,
    *,
    task: str,
    after: Annotated[int, Query(ge=0, description="from this event on; all of it unless said")] = 0,
    kind: Annotated[
        list[EventKind] | None, Query(description="only these, and the one that is the last")
    ] = None,
    last_event_id: Annotated[str, Header(max_length=20)] = "",
    follow: Annotated[bool, Query(description="wait for more until it is over")] = True,
    form: Annotated[Format, Query(alias="format")] = Format.SSE,
) -> Response:
    """Its events from the first on, and then as they happen; the one that says how it ended is the
    last. `Last-Event-ID` resumes without a gap."""
    known = await given.tasks.get(who, task)
    place = await place_to_follow(given, last_event_id, after)
    interest = Interest(who.team_id, known.id, frozenset(kind) | ENDS if kind else frozenset())
    is_over = known.state.is_final
    if is_over and not await given.events.page(interest, place, 1):
        return Response(status_code=204)  # what makes a browser stop asking
    if is_over or not follow:
        told = _so_far(given, interest, place)
    else:
        told = _to_the_end(given.events.follow(interest, place))
    staying = given.access.stays.stay(who)
    body = streams.of_events(told, form, place)
    return streams.response(
        body, form, request_id=request_id(request), staying=staying, place=place
    )


async def _so_far(given: Services, interest: Interest, place: int) -> AsyncIterator[Event]:
    while page := await given.events.page(interest, place, _PAGE):
        for event in page:
            yield event
        place = page[-1].seq


async def _to_the_end(followed: AsyncIterator[Event]) -> AsyncIterator[Event]:
    async for event in followed:
        yield event
        if event.kind in ENDS:
            return


@router.get("/output", response_class=StreamingResponse, responses=_OUTPUT)
async def output(
    given: Given,
    who: Who,
    *,
    task: str,
    run: Annotated[int, Query(ge=0, le=1 << 31, description="from this run of the agent on")] = 0,
    offset: Annotated[
        int, Query(ge=-1, le=1 << 62, description="after the piece at this offset of the run")
    ] = -1,
    form: Annotated[OutputFormat, Query(alias="format")] = OutputFormat.PLAIN,
) -> StreamingResponse:
    """What its agent has written so far, as it wrote it: the lines that its events were made of.
    The first 32 MiB are kept."""
    known = await given.tasks.get(who, task)
    pieces = _pieces(given, who, known.id, (run, offset))
    body = streams.attended(_written(pieces, form), given.access.stays.stay(who))
    kind = "text/plain" if form is OutputFormat.PLAIN else "application/x-ndjson"
    is_cut = known.conversation.raw > MOST_RAW
    headers = {**_SAFE, "x-paddock-cut": str(is_cut).lower()}
    return StreamingResponse(body, media_type=kind, headers=headers)


async def _pieces(
    given: Services, who: Principal, task_id: str, place: tuple[int, int]
) -> AsyncIterator[Output]:
    while found := await given.tasks.output(who, task_id, place, _AT_ONCE):
        for piece in found:
            yield piece
        place = (found[-1].run, found[-1].offset)


async def _written(pieces: AsyncIterator[Output], form: OutputFormat) -> AsyncIterator[bytes]:
    async for piece in pieces:
        yield piece.data if form is OutputFormat.PLAIN else _line(piece)


def _line(piece: Output) -> bytes:
    try:
        data = {"data": piece.data.decode()}
    except UnicodeDecodeError:
        data = {"data_base64": base64.b64encode(piece.data).decode()}
    return msgspec.json.encode({"run": piece.run, "offset": piece.offset, **data}) + b"\n"


@router.get("/diff", response_class=Response, responses=_DIFF)
async def diff(given: Given, who: Who, task: str) -> Response:
    """What it changed, once it is over."""
    text, is_cut = await given.tasks.diff(who, task)
    headers = {**_SAFE, "x-paddock-cut": str(is_cut).lower()}
    return Response(text, media_type="text/x-diff", headers=headers)
