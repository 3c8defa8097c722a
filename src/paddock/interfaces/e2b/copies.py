"""Snapshots and forks of a sandbox."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from paddock.domain.errors import Conflict, PaddockError
from paddock.domain.lifetime import Terms
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.team import Principal
from paddock.interfaces.api.context import Given, Services, Who
from paddock.interfaces.e2b import errors, shapes, views
from paddock.interfaces.e2b.context import Domain, Key, find
from paddock.interfaces.e2b.ids import meant
from paddock.interfaces.e2b.listing import NEXT
from paddock.interfaces.e2b.settling import settle_again
from paddock.interfaces.e2b.sources import split
from paddock.ports.store import Page
from paddock.services.build_records import DEFAULT_TAG
from paddock.services.builds import is_build
from paddock.services.taking import Capture
from paddock.services.wishes import Wish

router = APIRouter()
_MOST = 100


@router.post("/sandboxes/{sandbox}/snapshots")
async def take(
    given: Given, who: Who, key: Key, sandbox: str, *, asked: shapes.TakeSnapshot
) -> Response:
    """With its memory where that was asked for, or where nothing was said and it can be. A name
    that there is stands for the newest."""
    found = await find(given, who, sandbox)
    memory = _keeps_memory(given, found) if asked.memory is None else asked.memory
    name = split(asked.name)[0] if asked.name else ""
    if name and await given.e2b.builds.is_taken(who, name):
        raise Conflict(
            f"{name} is the name of a template",
            remediation="choose another, or delete the template first",
        )
    newest = bool(name)
    wish = Capture(name, memory, key=key, replace=newest, replace_any=newest)
    snapshot = await given.snapshots.take(who, found.id, wish)
    return JSONResponse(_show(snapshot), 201)


@router.get("/snapshots")
async def list_snapshots(
    given: Given,
    who: Who,
    *,
    sandbox: Annotated[str, Query(alias="sandboxID", max_length=64)] = "",
    name: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=_MOST)] = _MOST,
    next_token: Annotated[str, Query(alias="nextToken", max_length=64)] = "",
) -> Response:
    wanted = split(name)[0] if name else ""
    found: list[SnapshotRecord] = []
    after = next_token
    while len(found) <= limit:
        page = await given.snapshots.list(who, meant(sandbox) if sandbox else "", Page(500, after))
        found += [each for each in page if _is_shown(each, wanted)]
        if len(page) < 500:
            break
        after = page[-1].id
    headers = {NEXT: found[limit - 1].id} if len(found) > limit else {}
    return JSONResponse([_show(each) for each in found[:limit]], headers=headers)


@router.post("/sandboxes/{sandbox}/fork")
async def fork(
    given: Given, who: Who, domain: Domain, sandbox: str, *, asked: shapes.Fork
) -> Response:
    """Copies of its disk at one moment, that go on by themselves. Each is made or fails on its
    own."""
    source = await find(given, who, sandbox)
    lifetime = Terms(timeout_s=float(max(1, asked.timeout)), idle_timeout_s=None)
    wish = Wish(lifetime=lifetime, another=True)
    first = await _copy(given, who, source, wish)
    made = [first]
    if isinstance(first, SandboxRecord):
        # Of the first, in which nothing was started yet: the source goes on meanwhile.
        others = (_copy(given, who, first, wish) for _ in range(asked.count - 1))
        made += await asyncio.gather(*others)
    else:
        made *= asked.count
    handed = (_hand_over(given, who, source, each, domain=domain) for each in made)
    return JSONResponse(await asyncio.gather(*handed), 201)


async def _copy(
    given: Services, who: Principal, source: SandboxRecord, wish: Wish
) -> SandboxRecord | PaddockError:
    try:
        return await given.sandboxes.fork(who, source.id, wish)
    except PaddockError as error:
        return error


async def _hand_over(
    given: Services,
    who: Principal,
    source: SandboxRecord,
    made: SandboxRecord | PaddockError,
    *,
    domain: str,
) -> dict[str, Any]:
    if isinstance(made, PaddockError):
        return _failed(made)
    try:
        await given.e2b.headers.copy(who, source.id, made.id)
        await settle_again(given, who, made)
        keys = await given.e2b.passages.holders.give(who, made)
    except PaddockError as error:
        await given.sandboxes.delete(who, made.id, force=True)  # nobody has heard of it
        return _failed(error)
    return {"sandbox": views.made(made, keys, domain)}


def _failed(error: PaddockError) -> dict[str, Any]:
    told = errors.told(error)
    return {"error": errors.body(told.status, errors.text(error), told.word)}


def _is_shown(snapshot: SnapshotRecord, name: str) -> bool:
    named = name in ("", snapshot.name, snapshot.id)
    return bool(snapshot.ref) and named and not is_build(snapshot)


def _keeps_memory(given: Services, sandbox: SandboxRecord) -> bool:
    return given.providers.get(sandbox.provider).capabilities.checkpoint


def _show(snapshot: SnapshotRecord) -> dict[str, Any]:
    name = f"{snapshot.name}:{DEFAULT_TAG}"
    return {"snapshotID": name, "names": [name]}
