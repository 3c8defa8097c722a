"""Disk limits where the engine cannot enforce them: looked at, and ended when exceeded."""

import asyncio
import logging

from paddock.adapters.providers.docker import records
from paddock.adapters.providers.docker.life import Life
from paddock.domain.errors import PaddockError
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState

_log = logging.getLogger(__name__)


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
