"""What is known of a sandbox's inside and surroundings: metrics, logs, network."""

import asyncio
import time
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from paddock.domain.egress import NetworkMode
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Scope
from paddock.guest_client.host import GuestUsage
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.e2b import views
from paddock.interfaces.e2b.context import find
from paddock.interfaces.e2b.marks import with_internet
from paddock.interfaces.e2b.network import Network, egress_of, unsaid
from paddock.interfaces.e2b.rules import headers_of
from paddock.services.amendments import Amendment
from paddock.services.history import Place

router = APIRouter()
_SAMPLE_S = 0.1


@router.get("/sandboxes/{sandbox}/metrics")
async def metrics(
    given: Given,
    who: Who,
    sandbox: str,
    *,
    start: Annotated[int, Query(ge=0)] = 0,
    end: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """How it is now, if that is within what was asked for: earlier moments are not kept."""
    found = await find(given, who, sandbox)
    now = time.time()
    if (
        found.state is not SandboxState.RUNNING
        or now < start
        or (end is not None and now > end + 1)
    ):
        return JSONResponse([])
    async with given.inside.enter(who, found.id, "", Scope.SANDBOXES_READ) as entered:
        before = await entered.guest.usage()
        await asyncio.sleep(_SAMPLE_S)
        after = await entered.guest.usage()
    cpus, limit = found.resources.cpus, found.resources.memory_mib << 20
    return JSONResponse([_metric(before, after, now, cpus=cpus, limit=limit)])


def _metric(
    before: GuestUsage, after: GuestUsage, now: float, *, cpus: float, limit: int
) -> dict[str, Any]:
    used = 0.0
    if before.cpu_seconds is not None and after.cpu_seconds is not None:
        used = 100 * (after.cpu_seconds - before.cpu_seconds) / _SAMPLE_S
    return {
        "timestamp": views.moment(now),
        "timestampUnix": int(now),
        "cpuCount": max(1, round(cpus)),
        "cpuUsedPct": round(max(0.0, used), 2),
        "memUsed": after.memory_bytes or 0,
        "memTotal": after.memory_limit_bytes or limit,
        "memCache": 0,
        "diskUsed": after.disk_used_bytes,
        "diskTotal": after.disk_total_bytes,
    }


@router.get("/sandboxes/{sandbox}/logs")
@router.get("/v2/sandboxes/{sandbox}/logs")
async def logs(
    given: Given,
    who: Who,
    sandbox: str,
    *,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> Response:
    """What became of it, newest last: states, commands, refusals."""
    found = await find(given, who, sandbox)
    chapter = await given.history.read(who, found.id, Place(limit))
    entries = [
        {
            "timestamp": views.moment(step.at),
            "level": "info",
            "message": step.kind,
            "line": step.kind,
            "fields": {name: str(value) for name, value in step.data.items()},
        }
        for step in chapter.steps
    ]
    return JSONResponse({"logs": entries, "logEntries": entries})


@router.put("/sandboxes/{sandbox}/network")
async def put_network(given: Given, who: Who, sandbox: str, asked: Network) -> Response:
    """All rules are replaced: what is left out is as if it had never been said."""
    found = await find(given, who, sandbox)
    default = unsaid(internet=given.e2b.config.internet)
    wish = egress_of(asked, None, default)
    wish = replace(wish, mode=wish.mode or NetworkMode.ALLOWLIST)  # not as open as it was before
    headers = await headers_of(given, who, asked.rules)
    await given.egress.put(who, found.id, wish)
    closed = wish.mode is NetworkMode.NONE
    await given.e2b.headers.put(who, found.id, () if closed else headers)
    labels = with_internet(found.labels, asked.allow_internet_access)
    await given.sandboxes.amend(who, found.id, Amendment(labels=labels))
    return Response(status_code=204)
