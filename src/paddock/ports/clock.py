"""Time, so that rules about it can be tested without waiting."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds for durations, wall-clock seconds for records."""

    def now(self) -> float: ...
    def wall(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
