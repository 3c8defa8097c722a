"""Waiting for a sandbox that is being created."""

import asyncio
from dataclasses import dataclass

from paddock.domain.errors import Conflict, TimedOut
from paddock.domain.records import SandboxRecord

WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a caller waits for a creation, which does not end when the caller stops waiting."""

    wait_s: float | None = WAIT_S
    """TimedOut after that long, if another caller has begun it."""
    answer_after_s: float | None = None
    """After that long the caller gets the sandbox as it is, in `creating`."""


PATIENT = Patience()


async def awaited(
    making: asyncio.Task[SandboxRecord], record: SandboxRecord, patience: Patience
) -> SandboxRecord:
    """Return the sandbox. Conflict if the creation was cancelled."""
    limits = [each for each in (patience.wait_s, patience.answer_after_s) if each is not None]
    done, _ = await asyncio.wait({making}, timeout=min(limits, default=None))
    if making.cancelled():
        raise Conflict(
            f"sandbox {record.name} was removed while it was being created",
            remediation="create another",
        )
    if done:
        return making.result()
    if patience.answer_after_s in limits and patience.answer_after_s == min(limits):
        return record
    raise TimedOut(
        f"sandbox {record.name} is still being made for another caller after {patience.wait_s:g} s",
        remediation=f"ask again, or look at it with `paddock inspect {record.name}`",
    )
