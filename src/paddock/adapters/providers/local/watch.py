"""What is looked at again and again while the provider is open.

Disk limits where the file system does not enforce them, the rules of the open network, which
others on this host may take away or overrule, and whether the egress gateway lives.
"""

import asyncio
import logging

from paddock.adapters.providers.local.fencing import enclosed, is_fenced
from paddock.adapters.providers.local.life import Life
from paddock.adapters.providers.local.records import SandboxRecord
from paddock.domain.errors import PaddockError
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState

_log = logging.getLogger(__name__)
INTERVAL_S = 10.0
_GATEWAY_S = 1.0


async def watch(life: Life) -> None:
    """Until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(watch_network(life), name="network")
        group.create_task(watch_fences(life), name="fences")
        if not life.storage.enforces_disk_limit:
            group.create_task(watch_disks(life), name="disks")


async def watch_network(life: Life, interval: float = INTERVAL_S) -> None:
    """Until cancelled: keep the open network's rules in force."""
    while True:
        await asyncio.sleep(interval)
        try:
            if await life.network.heal():
                _log.warning("rules of the open network set again bridge=%s", life.network.bridge)
        except (PaddockError, OSError) as error:
            _log.warning("open network not healed error=%s", error)


async def watch_fences(life: Life, interval: float = _GATEWAY_S) -> None:
    """Until cancelled: a gateway that has died is followed by another. Meanwhile nothing leaves."""
    while True:
        await asyncio.sleep(interval)
        try:
            for ref in await life.fences.missing():
                await mend_fence(life, ref)
        except (PaddockError, OSError) as error:
            _log.warning("fences not looked at error=%s", error)


async def mend_fence(life: Life, ref: str) -> None:
    """One that should have a fence and has none gets it; one that should not is forgotten."""
    async with life.locks.hold(ref):
        record = life.records.read(ref)
        if record is None or not is_fenced(record) or not _lives(record):
            life.fences.mine.discard(ref)
        elif ref not in await life.fences.gateway.attached():
            await life.fences.put(enclosed(record))
            _log.warning("sandbox fenced again ref=%s", ref)


def _lives(record: SandboxRecord) -> bool:
    return record.machine is not None and record.machine.alive()


async def watch_disks(life: Life, interval: float = INTERVAL_S) -> None:
    """Until cancelled: stop every sandbox that has outgrown its disk, and say why."""
    while True:
        for record in list(life.records.all()):
            if record.state is SandboxState.RUNNING:
                try:
                    await _look(life, record)
                except (PaddockError, OSError) as error:
                    _log.warning("disk not measured ref=%s error=%s", record.ref, error)
        await asyncio.sleep(interval)


async def _look(life: Life, record: SandboxRecord) -> None:
    used = await asyncio.to_thread(life.storage.usage, life.volume(record.ref))
    limit = record.resources.disk_mib << 20
    if used <= limit:
        return
    async with life.held(record.ref) as current:
        if current.state is SandboxState.RUNNING:
            detail = f"{used >> 20} MiB used of {record.resources.disk_mib} MiB"
            await life.power_off(current, Reason.DISK_FULL, detail)
            _log.info("sandbox stopped ref=%s reason=disk_full %s", record.ref, detail)
