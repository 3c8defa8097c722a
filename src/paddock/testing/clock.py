"""A clock for tests: it goes on only when somebody waits or says so."""

import asyncio


class ManualClock:
    """Implements `paddock.ports.clock.Clock` without any waiting."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._passed = 0.0
        self._wall = wall
        self.slept: list[float] = []
        """How long each wait was, in order."""

    def now(self) -> float:
        return self._passed

    def wall(self) -> float:
        return self._wall + self._passed

    def advance(self, seconds: float) -> None:
        self._passed += seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)
