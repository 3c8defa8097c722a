"""`/v1/audit`: who did what, and whether it is as it was written."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from paddock.domain.audit import START, AuditEntry, Head
from paddock.domain.team import Principal, Scope
from paddock.interfaces.api import streams
from paddock.interfaces.api.context import Given, Services, Who
from paddock.interfaces.api.paging import ByNumber
from paddock.interfaces.api.routes.events import place_of
from paddock.interfaces.api.schemas.audit import (
    AuditShape,
    VerdictShape,
    holder_of,
    show_entry,
    show_verdict,
)
from paddock.interfaces.api.schemas.common import ListOf, paged
from paddock.ports.store import Transaction

router = APIRouter(prefix="/v1", tags=["events"])

Expected = Annotated[
    str,
    Query(
        pattern=r"^([0-9]{1,18}:[0-9a-f]{64})?$",
        description="SEQ:HASH of an entry, as an earlier answer had it: it has to be there still",
    ),
]


@router.get("/audit")
async def audit(given: Given, who: Who, page: ByNumber) -> ListOf[AuditShape]:
    """Who did what in the team, oldest first."""
    who.require(Scope.AUDIT_READ)
    found, names = await _entries(given, who, place_of(page.after), page.limit)
    return paged(
        found, page.limit - 1, lambda each: show_entry(each, names), lambda each: each.team_seq
    )


@router.get(
    "/audit/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}}},
)
async def export(request: Request, given: Given, who: Who) -> StreamingResponse:
    """The team's whole audit log, one entry a line. It can be checked by itself."""
    who.require(Scope.AUDIT_READ)

    async def lines() -> AsyncIterator[bytes]:
        place = 0
        while True:
            found, names = await _entries(given, who, place, 500)
            shown = (show_entry(entry, names).model_dump_json() for entry in found)
            yield "".join(f"{line}\n" for line in shown).encode()
            if len(found) < 500:
                return
            place = found[-1].team_seq

    body = streams.attended(lines(), given.access.stays.stay(who))
    return StreamingResponse(body, media_type="application/x-ndjson")


@router.get("/audit/verify")
async def verify(
    given: Given,
    who: Who,
    *,
    everything: Annotated[
        bool, Query(description="the chain of all teams' entries; for operators")
    ] = False,
    expect: Expected = "",
) -> VerdictShape:
    """Go along the team's chain, and say whether every entry is as it was written. A long log
    takes some seconds for each hundred thousand entries."""
    number, _, known = expect.partition(":")
    head = Head(int(number), known) if expect else START
    return show_verdict(await given.audit.verify(who, everything=everything, expect=head))


async def _entries(
    given: Services, who: Principal, place: int, limit: int
) -> tuple[Sequence[AuditEntry], Mapping[str, str]]:
    """With the names of the people in them, which are not in the chain: that is for ever."""

    def look(tx: Transaction) -> tuple[Sequence[AuditEntry], Mapping[str, str]]:
        found = tx.audit.after(place, limit, team_id=who.team_id)
        return found, tx.people.named(sorted({holder_of(entry) for entry in found}))

    return await given.store.read(look)
