"""What is looked at again and again while the provider is open: disk limits where the engine cannot
enforce them, and whether the egress gateway lives."""

import asyncio
import logging

from paddock.adapters.providers.docker import records
from paddock.adapters.providers.docker.life import Life
from paddock.adapters.providers.docker.networks import mend_network
from paddock.domain.errors import NotFound, PaddockError
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState

_log = logging.getLogger(__name__)
_GATEWAY_S = 1.0


async def watch(life: Life, disks_s: float) -> None:
    """Until cancelled."""
    async with asyncio.TaskGroup() as group:
        if life.machines.fencing.fences is not None:
            group.create_task(watch_fences(life), name="fences")
        if not life.limits.limit_disk:
            group.create_task(watch_disks(life, disks_s), name="disks")


async def watch_fences(life: Life, interval: float = _GATEWAY_S) -> None:
    """Until cancelled: a gateway that has died is followed by another. Meanwhile nothing leaves."""
    fences = life.machines.fencing.fences
    assert fences is not None
    while True:
        await asyncio.sleep(interval)
        try:
            for ref in await fences.missing():
                await mend_fence(life, ref)
        except PaddockError as error:
            _log.warning("fences not looked at error=%s", error)


async def mend_fence(life: Life, ref: str) -> None:
    try:
        if await mend_network(life, ref):
            _log.warning("sandbox fenced again id=%s", ref[:12])
    except NotFound:
        await life.machines.fencing.close(ref)


async def watch_disks(life: Life, interval: float) -> None:
    """Until cancelled: stop every sandbox that has outgrown its disk, and say why."""
    while True:
        await asyncio.sleep(interval)
        try:
            for container, used in await _sizes(life):
                await _look(life, container, used)
        except PaddockError as error:
            _log.warning("disks not measured error=%s", error)


async def _sizes(life: Life) -> list[tuple[str, int]]:
    seen = await life.engine.get(
        "containers/json", "measure its disks", size=1, filters=life.names.filter
    )
    return [
        (one["Id"], int(one.get("SizeRw") or 0))
        for one in seen
        if one["Labels"].get(records.KIND) == records.SANDBOX
    ]


async def _look(life: Life, ref: str, used: int) -> None:
    container = await life.inspect(ref)
    limit = container.record.resources.disk_mib
    if used <= limit << 20:
        return
    async with life.held(ref) as container:
        if container.state is SandboxState.RUNNING:
            detail = f"{used >> 20} MiB used of {limit} MiB"
            await life.machines.power_off(container, Reason.DISK_FULL, detail)
            _log.info("sandbox stopped id=%s reason=disk_full %s", ref[:12], detail)
