"""`/sandboxes` and `/v2/sandboxes`: made, found, kept alive, paused, ended."""

from collections.abc import Sequence

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from paddock.domain.broker.headers import OwnHeader
from paddock.domain.egress import NetworkMode
from paddock.domain.errors import Conflict, PaddockError, TimedOut, Unavailable
from paddock.domain.lifetime import MAX_TIMEOUT_S, OnTimeout
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal, Scope
from paddock.interfaces.api.context import Given, Services, Who
from paddock.interfaces.api.lean import Lean
from paddock.interfaces.e2b import network, rules, shapes, views
from paddock.interfaces.e2b.context import Domain, Key, find, missing
from paddock.interfaces.e2b.ids import shown
from paddock.interfaces.e2b.making import wish_of
from paddock.interfaces.e2b.rules import headers_of
from paddock.interfaces.e2b.settling import settle, settle_again
from paddock.interfaces.e2b.sources import Source, find_source
from paddock.services.amendments import Amendment

router = APIRouter(route_class=Lean)
_DEFAULT_V1_S, _DEFAULT_V2_S = 15, 300
_NOW_S = 0.001
_HEALTHY_S = 2.0


@router.post("/v2/sandboxes")
async def create(
    given: Given, who: Who, key: Key, domain: Domain, *, asked: shapes.CreateSandbox
) -> Response:
    return await _create(given, who, key, asked, timeout=_DEFAULT_V2_S, domain=domain)


@router.post("/sandboxes")
async def create_v1(
    given: Given, who: Who, key: Key, domain: Domain, *, asked: shapes.CreateSandbox
) -> Response:
    return await _create(given, who, key, asked, timeout=_DEFAULT_V1_S, domain=domain)


async def _create(
    given: Services,
    who: Principal,
    key: str,
    asked: shapes.CreateSandbox,
    *,
    timeout: int,
    domain: str,
) -> Response:
    source = await find_source(given, who, asked.template)
    wish = wish_of(given, source, asked, timeout)
    headers = await headers_of(given, who, asked.network.rules if asked.network else {})
    sandbox = await given.sandboxes.create(who, wish, key)
    if sandbox.state not in views.STATES or given.e2b.passages.is_over(sandbox):
        raise Conflict(
            f"what this idempotency key made, sandbox {shown(sandbox.id)}, is gone",
            remediation="use another key to make another",
        )
    if not sandbox.holders:  # otherwise it was handed over before, and is its client's
        await _prepare(given, who, sandbox, source, headers=headers)
    keys = await given.e2b.passages.holders.give(who, sandbox)
    return JSONResponse(views.made(sandbox, keys, domain), 201)


async def _prepare(
    given: Services,
    who: Principal,
    sandbox: SandboxRecord,
    source: Source,
    *,
    headers: Sequence[OwnHeader],
) -> None:
    try:
        if headers and sandbox.egress.mode is not NetworkMode.NONE:
            await given.e2b.headers.put(who, sandbox.id, headers)
        await settle(given, who, sandbox, source.left)
    except PaddockError:
        # Unless another call with the same key was quicker, nobody has heard of it.
        if not (await given.sandboxes.get(who, sandbox.id)).holders:
            await given.sandboxes.delete(who, sandbox.id, force=True)
        raise


@router.get("/sandboxes/{sandbox}")
async def get(given: Given, who: Who, domain: Domain, sandbox: str) -> Response:
    found = await find(given, who, sandbox)
    may_enter = Scope.SANDBOXES_WRITE in who.scopes
    keys = await given.e2b.passages.holders.give(who, found) if may_enter else None
    told = views.detailed(found, keys, domain)
    told["network"] = network.described(found, rules.described(given.e2b.headers.of(found)))
    return JSONResponse(told)


@router.post("/v2/sandboxes/{sandbox}/connect")
@router.post("/sandboxes/{sandbox}/connect")
@router.post("/sandboxes/{sandbox}/resume")
async def connect(
    given: Given, who: Who, domain: Domain, sandbox: str, *, asked: shapes.Connect
) -> Response:
    """One that runs never lives shorter for it; one that is paused runs again. The answer holds
    what opens it, so that it takes who may do anything in it."""
    who.require(Scope.SANDBOXES_WRITE)
    found = await find(given, who, sandbox)
    if found.state is SandboxState.RUNNING:
        found = await given.sandboxes.prolong(who, found.id, _seconds(asked.timeout))
    if found.state is SandboxState.RUNNING:
        keys = await given.e2b.passages.holders.give(who, found)
        return JSONResponse(views.made(found, keys, domain), 200)
    if found.state is SandboxState.PAUSED and not asked.memory:
        found = await given.sandboxes.stop(who, found.id)
    if found.state is SandboxState.PAUSED:
        await given.sandboxes.resume(who, found.id)
    else:
        found = await given.sandboxes.start(who, found.id)
        await settle_again(given, who, found)
    found = await _expire(given, who, found, asked.timeout)
    keys = await given.e2b.passages.holders.give(who, found)
    return JSONResponse(views.made(found, keys, domain), 201)


@router.post("/sandboxes/{sandbox}/timeout")
async def set_timeout(given: Given, who: Who, sandbox: str, asked: shapes.SetTimeout) -> Response:
    found = await find(given, who, sandbox)
    if found.state is not SandboxState.RUNNING:
        raise missing(sandbox)
    await _expire(given, who, found, asked.timeout)
    return Response(status_code=204)


@router.post("/sandboxes/{sandbox}/refreshes")
async def refresh(given: Given, who: Who, sandbox: str, asked: shapes.Refresh) -> Response:
    found = await find(given, who, sandbox)
    await given.sandboxes.prolong(who, found.id, _seconds(asked.duration))
    return Response(status_code=204)


@router.post("/sandboxes/{sandbox}/pause")
async def pause(
    given: Given, who: Who, sandbox: str, asked: shapes.Pause | None = None
) -> Response:
    """With its memory, or its disk only. It is kept for as long as anything may be asked to live,
    because a pause is how clients put a sandbox away."""
    found = await find(given, who, sandbox)
    if found.state is not SandboxState.RUNNING:
        raise Conflict(f"sandbox {sandbox} is already paused")
    asked = asked or shapes.Pause()
    if asked.require_healthy_guest or not asked.memory:
        await _check_healthy(given, who, found)
    verb = given.sandboxes.pause if asked.memory else given.sandboxes.stop
    kills = found.lifetime.on_timeout is OnTimeout.KILL and found.clock.expires_at is not None
    if not kills:
        await verb(who, found.id)
        return Response(status_code=204)
    left_s = max(_NOW_S, given.e2b.passages.remaining_s(found))
    await given.sandboxes.amend(who, found.id, Amendment(timeout_s=MAX_TIMEOUT_S))
    try:
        await verb(who, found.id)
    except PaddockError:
        await given.sandboxes.amend(who, found.id, Amendment(timeout_s=left_s))
        raise
    return Response(status_code=204)


async def _check_healthy(given: Services, who: Principal, sandbox: SandboxRecord) -> None:
    """Unavailable while the guest does not answer: what it would leave on the disk is unknown."""
    try:
        async with given.inside.enter(who, sandbox.id, "") as entered:
            await entered.guest.health(_HEALTHY_S)
    except (Unavailable, TimedOut) as error:
        raise Unavailable(
            f"the agent of sandbox {shown(sandbox.id)} does not answer, so it was not paused",
            remediation="try again, or pause it with its memory and without `strict`",
        ) from error


@router.delete("/sandboxes/{sandbox}")
async def kill(given: Given, who: Who, sandbox: str) -> Response:
    found = await find(given, who, sandbox)
    await given.sandboxes.delete(who, found.id)
    return Response(status_code=204)


async def _expire(
    given: Services, who: Principal, sandbox: SandboxRecord, seconds: int
) -> SandboxRecord:
    wanted = Amendment(timeout_s=_seconds(seconds))
    return await given.sandboxes.amend(who, sandbox.id, wanted)


def _seconds(asked: int) -> float:
    return max(_NOW_S, float(asked))
