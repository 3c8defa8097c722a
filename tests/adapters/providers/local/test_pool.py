"""When a warm pool makes what it lacks: a burst goes first, but steady demand starves nobody."""

import asyncio
import os

import pytest

from paddock.adapters.providers.host.processes import Process
from paddock.adapters.providers.local.plan import Plan
from paddock.adapters.providers.local.pool import WarmPool
from paddock.adapters.providers.local.records import Machine, SandboxRecord, boot_id
from paddock.domain.sandbox import Resources, SandboxState

pytestmark = pytest.mark.timeout(60)
WANTED, OTHER = (Plan(name, name, "", "crun", None, False) for name in ("wanted", "other"))


class Counted(WarmPool):
    """Its sandboxes are this process; how many were made of each plan is counted."""

    def __init__(self) -> None:
        super().__init__(self._make, self._discard)
        self.made: list[Plan] = []
        self.gone: list[str] = []

    async def _make(self, plan: Plan) -> SandboxRecord:
        self.made.append(plan)
        await asyncio.sleep(0.01)
        me = Process.of(os.getpid())
        return SandboxRecord(
            ref=f"r{len(self.made)}",
            owner="",
            state=SandboxState.RUNNING,
            template=plan.template,
            digest="",
            lower="",
            runtime="crun",
            created_at=0.0,
            resources=Resources(),
            machine=Machine(boot_id(), me, me),
        )

    async def _discard(self, record: SandboxRecord) -> None:
        self.gone.append(record.ref)


async def test_a_burst_is_served_before_anything_is_made() -> None:
    pool = Counted()
    pool.resize(WANTED, 6)
    await pool.settle()
    for _ in range(6):
        assert pool.take(WANTED) is not None
        await asyncio.sleep(0.02)
    assert len(pool.made) == 6
    await pool.settle()
    assert (len(pool.made), pool.ready(WANTED)) == (12, 6)
    await pool.aclose()


async def test_steady_demand_keeps_no_shelf_empty() -> None:
    pool = Counted()
    pool.resize(WANTED, 4)
    await pool.settle()
    pool.resize(OTHER, 2)
    hits = 0
    for _ in range(60):
        hits += pool.take(WANTED) is not None
        await asyncio.sleep(0.05)
    assert pool.made.count(OTHER) == 2
    assert hits >= 30
    await pool.aclose()


async def test_the_end_waits_for_nobodys_patience() -> None:
    pool = Counted()
    pool.resize(WANTED, 6)
    await pool.settle()
    assert pool.take(WANTED) is not None
    began = asyncio.get_running_loop().time()
    await pool.aclose()
    assert asyncio.get_running_loop().time() - began < 0.9


async def test_what_comes_back_to_a_full_shelf_goes() -> None:
    pool = Counted()
    pool.resize(WANTED, 2)
    await pool.settle()
    taken = [pool.take(WANTED) for _ in range(2)]
    await pool.settle()
    for record in taken:
        assert record is not None
        pool.give_back(WANTED, record)
    await pool.settle()
    assert pool.ready(WANTED) == 2
    assert pool.gone == [record.ref for record in taken if record]
    await pool.aclose()


async def test_what_comes_back_to_a_shelf_that_was_made_smaller_goes() -> None:
    pool = Counted()
    pool.resize(WANTED, 2)
    await pool.settle()
    one, other = pool.take(WANTED), pool.take(WANTED)
    assert one is not None and other is not None
    pool.resize(WANTED, 1)
    for record in (one, other):
        pool.give_back(WANTED, record)
    await pool.settle()
    assert (pool.ready(WANTED), pool.gone) == (1, [other.ref])
    pool.give_back(OTHER, one)
    await pool.settle()
    assert (pool.ready(OTHER), pool.gone) == (0, [other.ref, one.ref])
    await pool.aclose()
