"""How much memory something takes."""

import asyncio
import os
from pathlib import Path

MIB = 1 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class Peak:
    """How much more memory this process had at most than before."""

    async def __aenter__(self):
        self._before = resident()
        self.grown = 0
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()

    async def _watch(self):
        while True:
            self.grown = max(self.grown, resident() - self._before)
            await asyncio.sleep(0.01)
