"""`/v1/quarantine`: sandboxes that were set aside."""

from fastapi import APIRouter

from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.paging import SandboxPage
from paddock.interfaces.api.schemas.common import ListOf, page_of
from paddock.interfaces.api.schemas.quarantine import (
    CaseShape,
    CaseSummary,
    SetAside,
    show_case,
    summarize_case,
)
from paddock.interfaces.api.schemas.sandboxes import SandboxShape, show

router = APIRouter(prefix="/v1/quarantine", tags=["sandboxes"])


@router.get("")
async def list_set_aside(given: Given, who: Who, page: SandboxPage) -> ListOf[CaseSummary]:
    """The team's sandboxes that were set aside."""
    found = await given.care.quarantines.list(who)
    return page_of(found, page, summarize_case, lambda case: case.sandbox_id, last_first=True)


@router.get("/{sandbox}")
async def get_set_aside(given: Given, who: Who, sandbox: str) -> CaseShape:
    """One, with the evidence: what its task was at, recent events, where it went, its disk."""
    return show_case(await given.care.quarantines.get(who, sandbox))


@router.put("/{sandbox}")
async def set_aside(given: Given, who: Who, sandbox: str, wanted: SetAside) -> CaseShape:
    """Set a sandbox aside: it stands still, a task in it waits, its disk is kept, and nobody but an
    admin goes in."""
    return show_case(await given.care.quarantines.set(who, sandbox, wanted.why))


@router.delete("/{sandbox}")
async def clear(given: Given, who: Who, sandbox: str) -> SandboxShape:
    """Open it again, as an admin. It has to pass a smoke test; its task goes on when somebody
    resumes it."""
    return show(await given.care.quarantines.clear(who, sandbox))
