"""Several processes on one database: nothing is lost, doubled, forked or seen out of order."""

import asyncio
import os
import signal
import time

import pytest

from paddock.adapters.store.config import StoreConfig
from paddock.adapters.store.store import open_store
from paddock.domain.audit import first_break
from paddock.domain.errors import Unavailable
from tests.adapters.store.elsewhere import answers, go, programs
from tests.adapters.store.program import WRITERS


async def follow(store, count):
    """Every event once, as a reader sees them who asks for what is later than the last one."""
    seen, until = [], time.monotonic() + 60
    while len(seen) < count and time.monotonic() < until:
        after = seen[-1].seq if seen else 0
        seen += await store.read(lambda tx, after=after: tx.events.after(after, 50))
        await asyncio.sleep(0.002)
    return seen


@pytest.mark.parametrize("per_writer", [6, pytest.param(50, marks=pytest.mark.soak)])
async def test_a_reader_sees_every_event_once_and_in_order_while_two_processes_write(
    store, place, per_writer
):
    expected = 2 * WRITERS * per_writer
    with programs(2, "append", place, per_writer) as processes:
        go(processes)
        seen = await follow(store, expected)
        answers(processes)
    assert [one.seq for one in seen] == list(range(1, expected + 1))
    by_writer = {}
    for one in seen:
        by_writer.setdefault(one.subject, []).append(one.data["n"])
    assert len(by_writer) == 2 * WRITERS
    assert all(order == list(range(per_writer)) for order in by_writer.values())
    assert await store.read(lambda tx: tx.events.after(expected, 50)) == []
    chain = await store.read(lambda tx: tx.audit.after(0, expected + 1))
    assert len(chain) == expected
    assert first_break(chain) is None


async def test_of_processes_that_claim_the_same_all_see_the_same_winner(store, place):
    with programs(4, "race", place) as processes:
        go(processes)
        said = answers(processes)
    values, keys = zip(*(line.split() for line in said), strict=True)
    assert len(set(values)) == len(set(keys)) == 1


async def test_processes_that_start_at_once_make_the_tables_once(bare_place):
    with programs(4, "start", bare_place) as processes:
        go(processes)
        assert answers(processes) == ["opened"] * 4
    async with open_store(bare_place) as store:
        assert len(await store.read(lambda tx: tx.values.all("seen."))) == 4


async def test_what_was_acknowledged_is_there_after_a_kill(place):
    with programs(1, "acknowledge", place) as processes:
        go(processes)
        (process,) = processes
        acknowledged = [int(process.stdout.readline()) for _ in range(300)]
        os.kill(process.pid, signal.SIGKILL)
        # What it still said before it died counts as well; a line that is cut off does not.
        rest = process.stdout.read().split("\n")[:-1]
        acknowledged += [int(line) for line in rest]
        assert process.wait(10) == -signal.SIGKILL
    async with open_store(place) as store:
        kept = [one.seq for one in await store.read(lambda tx: tx.events.after(0, 100_000))]
        assert set(acknowledged) <= set(kept)
        assert kept == list(range(1, len(kept) + 1))
        assert await store.read(lambda tx: tx.events.last_seq()) == len(kept)


async def test_who_wants_the_file_alone_has_it_alone(sqlite_place):
    alone = StoreConfig(exclusive=True, wait_s=0.2)
    async with open_store(sqlite_place, alone) as store:
        assert not store.is_shared
        for config in (alone, StoreConfig(wait_s=0.2)):
            with pytest.raises(Unavailable, match="another process has it open"):
                async with open_store(sqlite_place, config):
                    pass
        await store.write(lambda tx: tx.values.put("x", 1))
    async with open_store(sqlite_place) as store:
        assert store.is_shared
        with pytest.raises(Unavailable):
            async with open_store(sqlite_place, alone):
                pass


async def test_who_opens_a_database_hears_whether_another_has_it(postgres_place):
    async with open_store(postgres_place) as first:
        assert first.was_unused
        async with open_store(postgres_place) as second:
            assert not second.was_unused
    with programs(1, "acknowledge", postgres_place) as processes:
        async with open_store(postgres_place) as other:
            assert not other.was_unused
        os.kill(processes[0].pid, signal.SIGKILL)
        processes[0].wait(10)
        await asyncio.sleep(0.2)
        async with open_store(postgres_place) as after:
            assert after.was_unused, "who was killed is not there any more"


async def test_a_process_that_was_killed_leaves_the_file_free(sqlite_place):
    with programs(1, "acknowledge", sqlite_place) as processes:
        os.kill(processes[0].pid, signal.SIGKILL)
        processes[0].wait(10)
    async with open_store(sqlite_place, StoreConfig(exclusive=True, wait_s=0.2)) as store:
        await store.ping()
