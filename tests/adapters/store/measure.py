"""The numbers of ADR 0009: python -m tests.adapters.store.measure [DIRECTORY | postgresql://…]

One write is a transaction that appends one event. With `aiosqlite` installed, the alternative with
a connection for each writer is measured as well.
"""

import asyncio
import importlib.util
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import event as listening
from sqlalchemy.ext.asyncio import create_async_engine

from paddock.adapters.store.config import StoreConfig
from paddock.adapters.store.store import open_store
from paddock.adapters.store.transaction import SqlTransaction
from tests.adapters.store.samples import event

WRITERS = (1, 16, 200)
SECONDS = 2.0
ONE = event(data={"state": "running", "name": "web"})


def append(tx):
    return tx.events.append([ONE])


def read(tx):
    return tx.events.after(0, 1)


async def rate(act, count):
    """What so many see who call one after the other: calls per second, a call's median, CPU."""
    taken, until, cpu = [], time.perf_counter() + SECONDS, time.process_time()

    async def repeat():
        while (begun := time.perf_counter()) < until:
            await act()
            taken.append(time.perf_counter() - begun)

    await asyncio.gather(*(repeat() for _ in range(count)))
    cpu = time.process_time() - cpu
    return (
        f"{len(taken) / SECONDS:8.0f} /s {sorted(taken)[len(taken) // 2] * 1000:8.2f} ms "
        f"{cpu / len(taken) * 1e6:6.0f} µs CPU"
    )


@asynccontextmanager
async def connections(place):
    """The alternative: aiosqlite, a pool, a transaction for each write."""
    async with open_store(place):
        pass
    engine = create_async_engine(f"sqlite+aiosqlite:///{place}", pool_size=16, max_overflow=0)

    @listening.listens_for(engine.sync_engine, "connect")
    def connected(connection, _):
        connection.isolation_level = None
        for pragma in ("synchronous = normal", "busy_timeout = 10000"):
            connection.execute(f"PRAGMA {pragma}")

    @listening.listens_for(engine.sync_engine, "begin")
    def begun(connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    async def write():
        async with engine.begin() as connection:
            await connection.run_sync(lambda raw: append(SqlTransaction(raw)))

    yield write
    await engine.dispose()


async def report(name, write):
    await write()
    for count in WRITERS:
        print(f"{name:26} {count:4} writers {await rate(write, count)}", flush=True)


async def measure(place):
    kinds = {"writer, no group commit": StoreConfig(batch=1), "writer, group commit": StoreConfig()}
    if "://" not in place:
        kinds["writer, synchronous=full"] = StoreConfig(synchronous="full")
        if importlib.util.find_spec("aiosqlite"):
            async with connections(f"{place}/paddock.db") as write:
                await report("aiosqlite, pool of 16", write)
    for name, config in kinds.items():
        where = place if "://" in place else f"{place}/paddock.db"
        async with open_store(where, config) as store:
            await report(name, lambda store=store: store.write(append))
    async with open_store(where) as store:
        print(f"{'read':26} {1:4} readers {await rate(lambda: store.read(read), 1)}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(measure(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
            asyncio.run(measure(directory))
