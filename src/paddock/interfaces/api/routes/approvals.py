"""`/v1/approvals`: what people are asked, and what they answer."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from paddock.domain.approval import Kind, State
from paddock.domain.event import EventKind
from paddock.domain.team import Scope
from paddock.interfaces.api import streams
from paddock.interfaces.api.context import Given, Key, Who
from paddock.interfaces.api.errors import request_id
from paddock.interfaces.api.paging import ApprovalPage
from paddock.interfaces.api.routes.events import place_to_follow
from paddock.interfaces.api.schemas.approvals import AnswerShape, ApprovalShape, show
from paddock.interfaces.api.schemas.common import ListOf, paged
from paddock.interfaces.api.streams import Format
from paddock.ports.approvals import ApprovalFilter
from paddock.services.events import Interest

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])
_KINDS = frozenset(
    {EventKind.APPROVAL_REQUESTED, EventKind.APPROVAL_ANSWERED, EventKind.APPROVAL_EXPIRED}
)
SandboxId = Annotated[str, Query(max_length=64, description="only of the sandbox with this id")]


@router.get("")
async def list_approvals(
    given: Given,
    who: Who,
    page: ApprovalPage,
    *,
    state: Annotated[list[State] | None, Query()] = None,
    kind: Kind | None = None,
    sandbox: SandboxId = "",
) -> ListOf[ApprovalShape]:
    """What the team is or was asked, newest first."""
    wanted = ApprovalFilter(frozenset(state or ()), kind, sandbox)
    found = await given.approvals.list(who, wanted, page)
    return paged(found, page.limit - 1, show, lambda each: each.id)


@router.get(
    "/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}, "application/x-ndjson": {}}}},
)
async def follow(
    request: Request,
    given: Given,
    who: Who,
    *,
    sandbox: SandboxId = "",
    after: Annotated[
        int | None, Query(ge=0, description="from this event on; from now unless said")
    ] = None,
    last_event_id: Annotated[str, Header(max_length=20)] = "",
    form: Annotated[Format, Query(alias="format")] = Format.SSE,
) -> StreamingResponse:
    """The events `approval.…` as they happen; `Last-Event-ID` resumes without a gap."""
    who.require(Scope.APPROVALS_READ)
    place = await place_to_follow(given, last_event_id, after)
    interest = Interest(who.team_id, sandbox, _KINDS)
    body = streams.of_events(given.events.follow(interest, place), form, place)
    staying = given.access.stays.stay(who)
    return streams.response(
        body, form, request_id=request_id(request), staying=staying, place=place
    )


@router.get("/{approval}")
async def get_approval(given: Given, who: Who, approval: str) -> ApprovalShape:
    """One question, and its answer if there is one."""
    return show(await given.approvals.get(who, approval))


@router.post("/{approval}/answer")
async def answer(
    given: Given, who: Who, approval: str, *, wanted: AnswerShape, key: Key
) -> ApprovalShape:
    """The first answer counts: every other one is told with 409 who gave which."""
    return show(await given.approvals.answer(who, approval, wanted.read(), key=key))
