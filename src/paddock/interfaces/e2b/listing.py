"""`GET /v2/sandboxes`: newest or oldest first, by metadata, state, template and time, in pages."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import parse_qsl, unquote

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from paddock.domain.errors import InvalidRequest
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal
from paddock.interfaces.api.context import Given, Services, Who
from paddock.interfaces.e2b import views
from paddock.interfaces.e2b.ids import meant, shown
from paddock.interfaces.e2b.marks import labels_of
from paddock.interfaces.e2b.sources import ours, split
from paddock.ports.store import Page, SandboxFilter
from paddock.services.builds import is_build

router = APIRouter()
_MOST = 100
_CHUNK = 500
NEXT = "x-next-token"
Fits = Callable[[SandboxRecord], bool]


@router.get("/v2/sandboxes")
async def list_sandboxes(
    given: Given,
    who: Who,
    *,
    metadata: str = "",
    state: Annotated[list[str] | None, Query()] = None,
    order: Literal["asc", "desc"] = "desc",
    started_after: Annotated[datetime | None, Query(alias="startedAfter")] = None,
    template: str = "",
    limit: Annotated[int, Query(ge=1, le=_MOST)] = _MOST,
    next_token: Annotated[str, Query(alias="nextToken", max_length=64)] = "",
) -> Response:
    wanted = SandboxFilter(labels=_labels(metadata), states=_states(state))
    name = split(template)[0] if template else ""

    def fits(sandbox: SandboxRecord) -> bool:
        if given.e2b.passages.is_over(sandbox) and sandbox.state is SandboxState.RUNNING:
            return False
        of_template = not name or split(views.template_of(sandbox))[0] in (name, ours(name))
        is_asked = of_template and views.started_at_or_after(sandbox, started_after)
        return is_asked and not is_build(sandbox)

    if order == "asc":
        found = await _oldest(given, who, wanted, fits)
        after = meant(next_token)
        found = [each for each in found if each.id > after][: limit + 1]
    else:
        found = await _newest(given, who, wanted, fits, page=Page(limit + 1, meant(next_token)))
    headers = {NEXT: shown(found[limit - 1].id)} if len(found) > limit else {}
    return JSONResponse([views.listed(each) for each in found[:limit]], headers=headers)


@router.get("/sandboxes")
async def list_v1(given: Given, who: Who, metadata: str = "") -> Response:
    """Those that run, all at once: what tools of before paging ask for."""
    running = frozenset({SandboxState.RUNNING})
    wanted = SandboxFilter(labels=_labels(metadata), states=running)

    def fits(sandbox: SandboxRecord) -> bool:
        return not is_build(sandbox) and not given.e2b.passages.is_over(sandbox)

    found = await _oldest(given, who, wanted, fits)
    return JSONResponse([views.listed(each) for each in reversed(found)])


async def _newest(
    given: Services, who: Principal, wanted: SandboxFilter, fits: Fits, *, page: Page
) -> Sequence[SandboxRecord]:
    found: list[SandboxRecord] = []
    after = page.after
    while len(found) < page.limit:
        chunk = await given.sandboxes.list(who, wanted, Page(_CHUNK, after))
        found += [each for each in chunk if fits(each)]
        if len(chunk) < _CHUNK:
            break
        after = chunk[-1].id
    return found[: page.limit]


async def _oldest(
    given: Services, who: Principal, wanted: SandboxFilter, fits: Fits
) -> Sequence[SandboxRecord]:
    """The store has the newest first, so that all have to be looked at."""
    every = Page(1 << 30)
    return list(reversed(await _newest(given, who, wanted, fits, page=every)))


def _labels(metadata: str) -> dict[str, str]:
    """Keys and values are quoted once more than the query itself."""
    pairs = parse_qsl(metadata, keep_blank_values=True)
    return labels_of({unquote(key): unquote(value) for key, value in pairs})


def _states(given: Sequence[str] | None) -> frozenset[SandboxState]:
    words = [word for each in given or () for word in each.split(",") if word]
    if unknown := set(words) - {"running", "paused"}:
        raise InvalidRequest(
            f"there is no state {', '.join(sorted(unknown))[:80]}",
            remediation="ask for running, paused or both",
        )
    return frozenset(ours for ours, theirs in views.STATES.items() if not words or theirs in words)
