"""Sandboxes that another caller has begun to make."""

import asyncio

from paddock.domain.errors import TimedOut
from paddock.domain.records import SandboxRecord


async def awaited(
    making: asyncio.Task[SandboxRecord], record: SandboxRecord, wait_s: float
) -> SandboxRecord:
    """What another caller has begun; it goes on when this one waits no longer."""
    done, _ = await asyncio.wait({making}, timeout=wait_s)
    if done:
        return await asyncio.shield(making)
    raise TimedOut(
        f"sandbox {record.name} is still being made for another caller after {wait_s:g} s",
        remediation=f"ask again, or look at it with `paddock inspect {record.name}`",
    )
