"""When the database fails: what is said, and that it goes on afterwards."""

import asyncio
import os
import sqlite3
import subprocess
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg
import pytest

from paddock.adapters.store.config import StoreConfig
from paddock.adapters.store.store import open_store
from paddock.domain.errors import Broken, Unavailable
from tests.adapters.store.samples import event
from tests.postgres import OwnServer, new_directory

QUICK = StoreConfig(wait_s=0.3)


def put(name, value=1):
    return lambda tx: tx.values.put(name, value)


@pytest.fixture
def small_disk(tmp_path, need):
    """A file system of 2 MiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)]
    if os.geteuid() != 0 or subprocess.run(command, check=False).returncode != 0:
        need("mounting", "a disk that can be filled is a file system of its own")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


async def test_a_full_disk_is_said_to_everybody_in_the_batch_and_passes(small_disk):
    async with open_store(small_disk / "paddock.db") as store:
        await store.write(put("before"))
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * (1 << 20))
        large = [store.write(put(f"{n}", "x" * 300_000)) for n in range(5)]
        results = await asyncio.gather(*large, return_exceptions=True)
        failed = [result for result in results if result is not None]
        assert failed
        for error in failed:
            assert isinstance(error, Unavailable)
            assert "the disk is full" in error.message
            assert "make room" in error.remediation
        ballast.unlink()
        await store.write(put("after"))
        there = set(await store.read(lambda tx: tx.values.all("")))
        assert {"before", "after"} <= there
        assert len(there) == 2 + len(results) - len(failed)


@pytest.mark.parametrize("kept_pages", [1, 20, 60])
async def test_a_damaged_file_is_broken_with_a_way_out(sqlite_place, kept_pages):
    async with open_store(sqlite_place) as store:
        for _ in range(20):
            await store.write(lambda tx: tx.events.append([event(data={"x": "y" * 500})] * 20))
    with open(sqlite_place, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        assert size > 4096 * 80
        file.seek(4096 * kept_pages)
        file.write(b"\xff" * (size - 4096 * kept_pages))
    with pytest.raises(Broken, match="the file is damaged") as broken:
        async with open_store(sqlite_place) as store:
            await store.read(lambda tx: tx.events.after(0, 1000))
    assert sqlite_place in broken.value.message
    assert "backup" in broken.value.remediation


async def test_a_file_that_was_taken_away_is_noticed(sqlite_place):
    async with open_store(sqlite_place) as store:
        await store.ping()
        Path(sqlite_place).rename(f"{sqlite_place}.away")
        with pytest.raises(Unavailable, match="removed or replaced"):
            await store.ping()
        Path(f"{sqlite_place}.away").rename(sqlite_place)
        await store.ping()


@asynccontextmanager
async def locked(place):
    """Somebody else is in the middle of a transaction."""
    if place.startswith("postgresql"):
        connection = await asyncpg.connect(place)
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({0x7061646B})")
            yield
        await connection.close()
        return
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


async def test_who_has_to_wait_too_long_is_told_and_reads_go_on(place):
    async with open_store(place, QUICK) as store:
        await store.write(put("x"))
        async with locked(place):
            with pytest.raises(Unavailable, match="another process has been writing") as refused:
                await store.write(put("x", 2))
            assert refused.value.retryable
            assert await store.read(lambda tx: tx.values.get("x")) == 1
        await store.write(put("x", 3))
        assert await store.read(lambda tx: tx.values.get("x")) == 3


async def end_connections(place):
    """What an administrator can do; which of ours they were."""
    connection = await asyncpg.connect(place)
    ended = await connection.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.close()
    return len(ended)


async def test_connections_that_were_lost_unnoticed_are_made_again(postgres_place):
    async with open_store(postgres_place) as store:
        for n in range(3):
            await store.write(put(f"{n}"))
            assert len(await store.read(lambda tx: tx.values.all(""))) == n + 1
            assert await end_connections(postgres_place) >= 2


async def test_a_connection_that_is_lost_in_the_middle_of_a_work_is_made_again(postgres_place):
    async with open_store(postgres_place) as store:
        loop = asyncio.get_running_loop()
        ended = []

        def work(tx):
            tx.values.put("x", len(ended))
            if not ended:
                request = asyncio.run_coroutine_threadsafe(end_connections(postgres_place), loop)
                ended.append(request.result(30))
            tx.events.append([event()])

        await store.write(work)
        assert await store.read(lambda tx: tx.values.all("")) == {"x": 1}
        assert await store.read(lambda tx: tx.events.last_seq()) == 1


@pytest.fixture
def own_server(postgres):
    """One that can be ended without ending other tests' databases."""
    server = OwnServer(new_directory())
    try:
        server.start()
        yield server
    finally:
        server.stop()
        server.remove()


async def test_a_server_that_goes_away_is_unavailable_until_it_is_back(own_server):
    async with open_store(own_server.address.format("postgres"), QUICK) as store:
        await store.write(put("x"))
        own_server.kill()
        for attempt in (store.ping, lambda: store.write(put("y")), store.ping):
            with pytest.raises(Unavailable, match="the connection failed"):
                await attempt()
        own_server.start()
        await store.ping()
        await store.write(put("z"))
        assert set(await store.read(lambda tx: tx.values.all(""))) == {"x", "z"}


async def test_a_server_that_is_back_is_told_again_who_is_there(own_server):
    place = own_server.address.format("postgres")
    async with open_store(place, QUICK):
        own_server.kill()
        own_server.start()
        async with asyncio.timeout(20):
            while await looks_unused(place):
                await asyncio.sleep(0.1)


async def looks_unused(place):
    async with open_store(place, QUICK) as other:
        return other.was_unused


async def fail_first(place, count, code):
    """The first so many writes of a value fail as if others were in their way."""
    connection = await asyncpg.connect(place)
    await connection.execute(f"""
        CREATE SEQUENCE attempts;
        CREATE FUNCTION get_in_the_way() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('attempts') <= {count} THEN
                RAISE EXCEPTION 'in the way' USING ERRCODE = '{code}';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER in_the_way BEFORE INSERT ON value
            FOR EACH ROW EXECUTE FUNCTION get_in_the_way();
    """)
    await connection.close()


@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_what_the_server_asks_to_repeat_is_repeated(postgres_place, code):
    await fail_first(postgres_place, 3, code)
    async with open_store(postgres_place) as store:
        await asyncio.gather(*(store.write(put(f"{n}")) for n in range(10)))
        assert len(await store.read(lambda tx: tx.values.all(""))) == 10


async def test_what_the_server_asks_to_repeat_for_ever_is_given_up(postgres_place):
    await fail_first(postgres_place, 1000, "40001")
    async with open_store(postgres_place) as store:
        with pytest.raises(Unavailable, match="getting in each other's way"):
            await store.write(put("x"))
        await store.write(lambda tx: tx.events.append([event()]))


async def test_a_statement_that_takes_too_long_is_unavailable(postgres_place):
    async with open_store(postgres_place, StoreConfig(command_s=0.5)) as store:
        slow = lambda tx: tx._connection.exec_driver_sql("SELECT pg_sleep(20)")  # noqa: E731
        for attempt in (store.read, store.write):
            with pytest.raises(Unavailable, match="took too long"):
                await attempt(slow)
        await store.write(put("x"))
        await store.ping()


async def test_reads_that_nobody_waits_for_any_more_cost_no_connection(postgres_place):
    async with open_store(postgres_place, StoreConfig(readers=2, wait_s=2.0)) as store:
        slow = lambda tx: tx._connection.exec_driver_sql("SELECT pg_sleep(20)")  # noqa: E731
        for _ in range(3):
            reads = [asyncio.ensure_future(store.read(slow)) for _ in range(4)]
            await asyncio.sleep(0.1)
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)
        await asyncio.gather(*(store.ping() for _ in range(4)))
