"""Somebody else who uses the same database: another thread with its own store, another process."""

import asyncio
import subprocess
import sys
import threading
from contextlib import contextmanager

from paddock.adapters.store.store import open_store
from tests.repository.checkout import ROOT


def write_elsewhere(place, work):
    """What `work` returns. Blocks, so that it can be called in the middle of another work."""
    done = []

    async def write():
        async with open_store(place) as store:
            done.append(await store.write(work))

    thread = threading.Thread(target=lambda: asyncio.run(write()))
    thread.start()
    thread.join(30)
    assert done, "the other one did not get through"
    return done[0]


@contextmanager
def programs(count, verb, place, *arguments):
    """So many processes of `program.py` that have said that they are ready; ended for sure."""
    started = []
    try:
        for number in range(count):
            command = [sys.executable, "-m", "tests.adapters.store.program"]
            command += [verb, place, str(number), *map(str, arguments)]
            started.append(
                subprocess.Popen(
                    command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
        for process in started:
            assert process.stdout.readline() == "ready\n"
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def go(processes):
    """The starting gun."""
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


def answers(processes):
    """What each of them said last, when it has ended well."""
    said = [process.stdout.read().strip() for process in processes]
    assert [process.wait(60) for process in processes] == [0] * len(processes)
    return said
