"""Sandboxes of the local provider, next to containers of the Docker engine and to `cp`."""

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from tests.harness.disk import TEMPLATES

from bench import docker, rows
from bench.measurements import Stage, measures
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.adapters.providers.local.storage import unmount_pool
from paddock.guest_client import Guest
from paddock.ports.provider import Observation, SandboxSpec

SPEC = SandboxSpec(template="base")
_TREE = "100 MB / 5,000 files, running"
_IDLE = 50
Setup = tuple[LocalProvider, docker.Engine]


async def first_output(provider: LocalProvider, key: str) -> Observation:
    """Create a sandbox and read its first command's output."""
    seen = await provider.create(key, SPEC)
    async with Guest(await provider.guest(seen.ref)) as guest:
        result = await guest.exec(["/bin/echo", "hello"])
        assert result.stdout == b"hello\n"
    return seen


async def destroy_all(provider: LocalProvider) -> None:
    refs = [seen.ref async for seen in provider.find({})]
    for ref in refs:
        await provider.destroy(ref)


@measures(
    "create to first output, warm pool (docker run)",
    "create to first output, cold (docker run)",
)
async def creates(setup: Setup) -> list[rows.Row]:
    provider, engine = setup

    async def cold(number: int) -> float:
        return await rows.timed(lambda: first_output(provider, f"cold-{number}"))

    await cold(-1)
    cold_ms = await rows.median(15, cold)
    docker_ms = await engine.run_ms()
    await destroy_all(provider)

    await provider.keep_warm("base", 16)
    await provider.warmed()

    async def warm(number: int) -> float:
        return await rows.timed(lambda: first_output(provider, f"warm-{number}"))

    warm_ms = await rows.median(12, warm)
    await provider.warmed()
    await provider.keep_warm("base", 0)
    await provider.warmed()
    await destroy_all(provider)
    return [
        rows.fraction(warm_ms, docker_ms, 20),
        rows.fraction(cold_ms, docker_ms, 6),
    ]


@measures("100 creates at once, pool of 100, p50")
async def burst(provider: LocalProvider) -> list[rows.Row]:
    await provider.keep_warm("base", 100)
    await provider.warmed()
    times: list[float] = []

    async def one(number: int) -> None:
        times.append(await rows.timed(lambda: first_output(provider, f"burst-{number}")))

    await asyncio.gather(*(one(number) for number in range(100)))
    await provider.keep_warm("base", 0)
    await provider.warmed()
    await destroy_all(provider)
    assert len(times) == 100
    return [rows.at_most(sorted(times)[50], 350, "ms")]


@measures("creates per second, 8 in parallel, no pool (docker run)")
async def rate(setup: Setup) -> list[rows.Row]:
    provider, engine = setup

    async def ours(number: int) -> None:
        await first_output(provider, f"rate-{number}")

    async def theirs(_: int) -> None:
        await engine.run_once()

    ours_rate = await _rate(ours, 64, 8)
    docker_rate = await _rate(theirs, 16, 8)
    await destroy_all(provider)
    return [rows.at_least(ours_rate, 60, "/s", docker_rate)]


async def _rate(work: object, total: int, workers: int) -> float:
    numbers = iter(range(total))

    async def worker() -> None:
        for number in numbers:
            await work(number)  # type: ignore[operator]

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(workers)))
    return total / (time.perf_counter() - start)


@measures(
    "exec of `true`, p50 (Docker API exec)",
    "exec per second, 16 clients (Docker API exec)",
)
async def execs(setup: Setup) -> list[rows.Row]:
    provider, engine = setup
    seen = await provider.create("exec", SPEC)
    container = await engine.idle()
    async with Guest(await provider.guest(seen.ref)) as guest:

        async def ours(_: int) -> None:
            assert (await guest.exec(["true"])).exit_code == 0

        async def theirs(_: int) -> None:
            await engine.exec_true(container)

        await ours(0)
        ours_ms = await rows.median(200, lambda n: rows.timed(lambda: ours(n)))
        docker_ms = await engine.exec_ms()
        ours_rate = max([await _rate(ours, 800, 16) for _ in range(3)])
        docker_rate = await _rate(theirs, 64, 16)
    await destroy_all(provider)
    return [
        rows.fraction(ours_ms, docker_ms, 15),
        rows.at_least(ours_rate, 800, "/s", docker_rate),
    ]


FILES = """
import os
for directory in range(50):
    os.makedirs(f"/home/user/tree/{directory}")
    for file in range(100):
        with open(f"/home/user/tree/{directory}/{file}", "wb") as out:
            out.write(os.urandom(20480))
"""


@measures(
    f"copy of the disk, {_TREE}, clean (cp -a)",
    f"copy of the disk, {_TREE}, 100 dirty (cp -a)",
    f"fork to a running sandbox, {_TREE} (cp -a)",
)
async def forks(provider: LocalProvider) -> list[rows.Row]:
    seen = await provider.create("fork", SPEC)
    clean_ms: list[float] = []
    dirty_ms: list[float] = []
    copy_ms: list[float] = []
    async with Guest(await provider.guest(seen.ref)) as guest:
        result = await guest.exec(["python3", "-c", FILES], timeout=120)
        assert result.exit_code == 0, result.stderr
        await _sync()
        volume = provider._life.volume(seen.ref.id)
        for number in range(5):
            # The disk part alone, as `cp -a` is: freeze, copy, thaw.
            clean_ms.append(
                await rows.timed(lambda n=number: provider.snapshot(seen.ref, f"clean-{n}"))
            )
        for number in range(5):
            touch = "for i in $(seq 100); do echo $RANDOM > /home/user/tree/1/$i; done"
            await guest.exec(["bash", "-c", touch])
            dirty_ms.append(
                await rows.timed(lambda n=number: provider.snapshot(seen.ref, f"dirty-{n}"))
            )
        for number in range(3):
            target = Path(tempfile.mkdtemp(prefix="paddock-bench-copy-", dir=volume.parents[1]))
            await _sync()
            copy_ms.append(await rows.timed(lambda t=target: _copy(volume / "upper", t)))
            shutil.rmtree(target)
        fork_ms = [
            await rows.timed(lambda n=number: provider.fork(seen.ref, f"f-{n}", SandboxSpec()))
            for number in range(5)
        ]
    async for snapshot in provider.snapshots():
        await provider.delete_snapshot(snapshot.ref)
    await destroy_all(provider)
    copied = sorted(copy_ms)[1]
    clean, dirty, fork = sorted(clean_ms)[2], sorted(dirty_ms)[2], sorted(fork_ms)[2]
    return [rows.fraction(each, copied, 20) for each in (clean, dirty, fork)]


async def _sync() -> None:
    process = await asyncio.create_subprocess_exec("sync")
    await process.wait()


async def _copy(source: Path, target: Path) -> None:
    process = await asyncio.create_subprocess_exec("cp", "-a", str(source), str(target))
    assert await process.wait() == 0


@measures(f"idle sandbox, memory (PSS), joined guest, {_IDLE} of them")
async def memory(setup: Setup) -> list[rows.Row]:
    provider, engine = setup
    for number in range(_IDLE):
        await provider.create(f"idle-{number}", SPEC)
    pids = [
        pid
        async for seen in provider.find({})
        for pid in provider._life.machines.cgroup(seen.ref.id).pids()
    ]
    ours = sum(docker.pss_kib(pid) for pid in pids) / _IDLE / 1024
    theirs = await engine.shim_pss_kib(await engine.idle()) / 1024
    await destroy_all(provider)
    return [replace(rows.at_most(ours, 4, "MB"), baseline=theirs, ratio=ours / theirs)]


@contextlib.asynccontextmanager
async def installation() -> AsyncIterator[LocalProvider]:
    """A data directory of its own; the template comes from the cache that the tests use too."""
    home = Path(tempfile.mkdtemp(prefix="paddock-bench-", dir="/var/tmp"))
    provider = await LocalProvider.open(
        LocalConfig(data_dir=home / "data", template_cache=TEMPLATES)
    )
    try:
        yield provider
    finally:
        await destroy_all(provider)
        await provider.aclose()
        unmount_pool(home / "data")
        shutil.rmtree(home, ignore_errors=True)


@contextlib.asynccontextmanager
async def docker_engine(provider: LocalProvider) -> AsyncIterator[docker.Engine]:
    """An engine with the root file system of the provider's sandboxes."""
    first = await provider.create("first", SPEC)
    record = provider._life.records.read(first.ref.id)
    assert record is not None
    await provider.destroy(first.ref)
    async with docker.engine(Path(record.lower)) as engine:
        yield engine


@contextlib.asynccontextmanager
async def with_docker() -> AsyncIterator[Setup]:
    async with installation() as provider, docker_engine(provider) as engine:
        yield provider, engine


STAGES = (
    Stage("local sandboxes and a Docker engine", with_docker, (creates, rate, execs, memory)),
    Stage("local sandboxes", installation, (burst, forks)),
)
