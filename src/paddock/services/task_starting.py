"""A worker that holds a task and does nothing with it lets go of it: another tries."""

import asyncio
from collections.abc import Awaitable, Callable

from paddock.domain.task_start import longest_step_s, why_it_hangs
from paddock.domain.vitals import Thresholds
from paddock.services.task_hold import Hold

_GRACE_S = 5.0
Run = Callable[[Hold], Awaitable[None]]
"""Moves a task on until it is over or cannot go on for now."""


class Stalled(Exception):
    """Before its agent began, the task came no step further for too long."""


async def run_or_stall(run: Run, hold: Hold, thresholds: Thresholds) -> None:
    """What `run` does with the task. Stalled when it hangs on the way to its agent; what hangs then
    is broken off, and can write nothing more once somebody else holds the task."""
    doing = asyncio.ensure_future(run(hold))
    try:
        while (limit_s := longest_step_s(hold.task, thresholds)) is not None:
            seen = hold.progress
            done, _ = await asyncio.wait({doing}, timeout=limit_s)
            if done:
                break
            if hold.progress == seen:
                raise Stalled(why_it_hangs(hold.task, limit_s))
        await doing
    finally:
        if not doing.done():
            doing.cancel()
            await asyncio.wait({doing}, timeout=_GRACE_S)
