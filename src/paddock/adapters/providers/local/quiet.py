"""A moment of stillness: the file system of a running sandbox is copied while nothing writes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.host.cgroups import Cgroup
from paddock.adapters.providers.local.records import SandboxRecord
from paddock.domain.sandbox import SandboxState


@asynccontextmanager
async def quiet(record: SandboxRecord, cgroup: Cgroup) -> AsyncIterator[None]:
    """Freeze, and thaw whatever happens. A paused or stopped sandbox is quiet already."""
    if record.state is not SandboxState.RUNNING:
        yield
        return
    try:
        await uncancelled(asyncio.to_thread(cgroup.freeze))
        yield
    finally:
        cgroup.thaw()
