"""A warm sandbox is claimed, waits again, or is destroyed: none is ever lost in between."""

import asyncio
from dataclasses import replace

import pytest

from paddock.adapters.providers.local.layout import Layout
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.adapters.providers.local.records import Keys, Records, SandboxRecord
from paddock.domain.errors import LimitExceeded, PaddockError
from paddock.domain.sandbox import Resources
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.local.conftest import Installation

pytestmark = pytest.mark.timeout(120)

TINY = SandboxSpec(template="tiny", resources=Resources(memory_mib=200))


class FullDisk(Records):
    """Records of a disk that is full from one write on, for a while or for good."""

    def __init__(self, layout: Layout, first: int, last: int) -> None:
        super().__init__(layout)
        self.full = range(first, last + 1)
        self.writes = 0

    def write(self, record: SandboxRecord) -> SandboxRecord:
        self.writes += 1
        if self.writes - 1 in self.full:
            raise LimitExceeded("the disk is full")
        return super().write(record)


class NoMoreKeys(Keys):
    """Keys that cannot be written down."""

    def claim(self, kind: str, key: str, target: str) -> str:
        raise LimitExceeded("the disk is full")


def waiting(provider: LocalProvider) -> list[str]:
    return [record.ref for shelf in provider.warm._shelves.values() for record in shelf.waiting]


async def assert_none_is_lost(provider: LocalProvider) -> None:
    await provider.warmed()
    found = [seen.ref.id async for seen in provider.find({})]
    assert sorted(provider._life.records.refs()) == sorted([*waiting(provider), *found])


async def kept_warm(provider: LocalProvider) -> str:
    """The only sandbox that waits; no other will be made in its place."""
    await provider.keep_warm("tiny", 1)
    await provider.warmed()
    # As if the shelves were being filled already, by somebody who never gets to it.
    provider.warm._refilling = asyncio.get_running_loop().create_future()  # type: ignore[assignment]
    (ref,) = waiting(provider)
    return ref


@pytest.mark.proves("L7")
async def test_a_claim_that_is_cancelled_at_the_lock_gives_it_back(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        ref = await kept_warm(provider)
        async with provider._life.locks.hold(ref):
            claim = asyncio.create_task(provider.create("k", TINY))
            while waiting(provider):
                await asyncio.sleep(0.001)
            claim.cancel()
            await asyncio.gather(claim, return_exceptions=True)
        assert waiting(provider) == [ref]
        assert (await provider.create("k", TINY)).ref.id == ref
        await assert_none_is_lost(provider)


@pytest.mark.proves("L7")
@pytest.mark.parametrize("for_good", [False, True], ids=["for a moment", "for good"])
@pytest.mark.parametrize("first", range(3))
async def test_a_claim_on_a_full_disk_loses_nothing(
    installation: Installation, first: int, for_good: bool
) -> None:
    async with installation.opened() as provider:
        await kept_warm(provider)
        life = provider._life
        full = FullDisk(life.layout, first, 1000 if for_good else first)
        provider.warm._life = replace(life, records=full)
        failed = False
        try:
            await provider.create("k", TINY)
        except PaddockError:
            failed = True
        assert failed == (first < 2), "a claim writes twice"
        await assert_none_is_lost(provider)
        provider.warm._life = life
        assert (await provider.create("k", TINY)).state == "running"
        await installation.empty(provider)
    installation.assert_no_traces()


@pytest.mark.proves("L7")
@pytest.mark.parametrize("writable", [True, False])
async def test_a_claim_that_gets_no_key_gives_it_back_or_destroys_it(
    installation: Installation, writable: bool
) -> None:
    async with installation.opened() as provider:
        ref = await kept_warm(provider)
        life = provider._life
        records = FullDisk(life.layout, 1, 0 if writable else 1000)
        provider.warm._life = replace(life, records=records, keys=NoMoreKeys(life.layout))
        with pytest.raises(LimitExceeded):
            await provider.create("k", TINY)
        assert waiting(provider) == ([ref] if writable else [])
        await assert_none_is_lost(provider)
        provider.warm._life = life
    installation.assert_no_traces()


async def test_a_shelf_that_became_smaller_keeps_no_more(installation: Installation) -> None:
    async with installation.opened() as provider:
        await provider.prepare("tiny")
        await provider.keep_warm("tiny", 4)
        await asyncio.sleep(0.01)
        await provider.keep_warm("tiny", 1)
        await provider.warmed()
        assert len(waiting(provider)) == 1
        await assert_none_is_lost(provider)
    installation.assert_no_traces()


@pytest.mark.proves("L7")
@pytest.mark.parametrize("first", range(4))
async def test_a_pool_that_cannot_be_filled_leaves_nothing(
    installation: Installation, first: int
) -> None:
    async with installation.opened() as provider:
        await provider.prepare("tiny")
        life = provider._life
        provider.warm._life = replace(life, records=FullDisk(life.layout, first, 1000))
        await provider.keep_warm("tiny", 1)
        await assert_none_is_lost(provider)
        provider.warm._life = life
    installation.assert_no_traces()
