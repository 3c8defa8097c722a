"""A process that uses a store: python -m tests.adapters.store.program VERB PLACE NUMBER …"""

import asyncio
import sys

from paddock.adapters.store.store import open_store
from tests.adapters.store.samples import entry, event

WRITERS = 8


async def ready():
    """Wait for the starting gun without keeping the loop from its work."""
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def append(place, number, count):
    """So many events and audit entries by each of several writers."""
    async with open_store(place) as store:
        await ready()

        async def write(writer):
            for n in range(int(count)):

                def work(tx, n=n):
                    tx.audit.append([entry(detail={"by": number, "n": n})])
                    tx.events.append([event(subject=f"{number}-{writer}", data={"n": n})])

                await store.write(work)

        await asyncio.gather(*map(write, range(WRITERS)))


async def acknowledge(place, number):
    """Write until killed, and say the number of each event once it is committed."""
    async with open_store(place) as store:
        await ready()

        async def write(writer):
            while True:
                work = lambda tx: tx.events.append([event(subject=f"{number}-{writer}")])  # noqa: E731
                (done,) = await store.write(work)
                print(done.seq, flush=True)

        await asyncio.gather(*map(write, range(WRITERS)))


async def race(place, number):
    """Claim the same name and the same key as everybody else; say who got them."""
    async with open_store(place) as store:
        await ready()
        value = await store.write(lambda tx: tx.values.add("installation", number))
        key = await store.write(
            lambda tx: tx.keys.claim("t", "k", fingerprint="f", object_id=number, now=1.0)
        )
        print(value, key)


async def start(place, number):
    """Open the store at the same moment as everybody else."""
    await ready()
    async with open_store(place) as store:
        await store.write(lambda tx: tx.values.put(f"seen.{number}", True))
        print("opened")


if __name__ == "__main__":
    verbs = {each.__name__: each for each in (append, acknowledge, race, start)}
    asyncio.run(verbs[sys.argv[1]](*sys.argv[2:]))
