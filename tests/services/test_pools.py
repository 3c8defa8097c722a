"""Warm pools whose size is changed while everything runs, on real sandboxes of this host."""

import asyncio
from dataclasses import replace

import pytest

from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.pressure import Band, Memory, kept_warm
from paddock.services.pressure import Pressure
from paddock.services.provider_templates import Kept, Pool
from paddock.services.providers import Providers
from paddock.settings import Settings
from paddock.wiring.providers import layered
from paddock.wiring.server import assembled
from tests.control_plane import disposable
from tests.engines import local_config

PATH = "/v1/templates/base/pool"


@pytest.fixture(scope="module")
async def provider():
    made = await LocalProvider.open(local_config())
    await made.prepare("base")
    return made


@pytest.fixture(scope="module")
async def plane(provider):
    async with disposable(provider=lambda _: layered(provider)) as made:
        made.services.providers.templates["local"] = kept(provider)
        yield made


def kept(provider, **configured):
    pool = Pool(provider.keep_warm, provider.warm.ready_of, configured)
    return Kept(provider.templates, provider.prepare, pool=pool)


async def resized(plane, size):
    answer = await plane.admin.call("PATCH", PATH, {"size": size})
    assert answer.status == 200, answer.body
    return answer.body


async def until_ready(plane, count):
    async with asyncio.timeout(60):
        while (await plane.admin.get(PATH))["ready"] != count:
            await asyncio.sleep(0.05)


async def test_a_pool_grows_and_shrinks_at_once_and_a_create_is_a_claim(plane, provider):
    before = await plane.admin.get(PATH)
    assert (before["size"], before["source"], before["ready"]) == (0, "default", 0)
    assert (await resized(plane, 2))["size"] == 2
    await until_ready(plane, 2)
    waiting = {each.ref for each in provider._life.records.all() if each.pooled}
    made = await plane.admin.post("/v1/sandboxes")
    record = await plane.services.inside._changes.find("", made["id"])
    assert record.ref in waiting
    await until_ready(plane, 2)
    text = (await plane.admin.get("/metrics")).body.decode()
    for name in ("wanted", "kept", "ready"):
        assert f'paddock_pool_{name}{{provider="local",template="base"}} 2.0' in text
    assert (await resized(plane, 0))["size"] == 0
    await until_ready(plane, 0)
    await provider.warmed()
    assert not [each for each in provider._life.records.all() if each.pooled]
    await plane.admin.delete(f"/v1/sandboxes/{made['id']}")
    audit = (await plane.admin.get("/v1/audit?limit=500"))["items"]
    sizes = [e["detail"]["size"] for e in audit if e["action"] == "pool.changed"]
    assert sizes == [2, 0]


@pytest.mark.proves("L10")
async def test_pools_give_way_before_anybodys_sandbox(plane, provider):
    memory = [Memory(10_000, 5_000)]
    pressure = object.__new__(Pressure)
    pressure.__dict__.update(plane.rounds.pressure.__dict__, _memory=lambda: memory[0])
    await resized(plane, 2)
    await until_ready(plane, 2)
    for available, left in ((1_400, 1), (900, 0), (5_000, 2)):
        memory[0] = Memory(10_000, available)
        await pressure.look()
        state = await plane.admin.get(PATH)
        assert (state["size"], state["kept"]) == (2, left)
        await until_ready(plane, left)
    await resized(plane, 0)
    await provider.warmed()


@pytest.mark.parametrize(
    ("band", "left"), [(Band.NORMAL, 7), (Band.MODERATE, 3), (Band.HIGH, 0), (Band.CRITICAL, 0)]
)
def test_the_shorter_memory_is_the_fewer_wait(band, left):
    assert kept_warm(7, band) == left


async def test_only_operators_change_a_pool_and_nonsense_is_refused(plane):
    member = await plane.member(role="viewer")
    assert (await member.call("PATCH", PATH, {"size": 1})).status == 403
    other = await plane.team("poolers")
    assert (await other.call("PATCH", PATH, {"size": 1})).status == 403
    for size in (-1, 1001, "two", 1.5):
        assert (await plane.admin.call("PATCH", PATH, {"size": size})).status == 400
    missing = await plane.admin.call("PATCH", "/v1/templates/none/pool", {"size": 1})
    assert missing.status == 404
    assert (await plane.admin.get(PATH))["size"] == 0


async def test_what_was_set_outlives_a_restart_and_can_be_taken_back(provider, tmp_path):
    settings = replace(Settings(), server=replace(Settings().server, data_dir=tmp_path))

    async def restarted(size):
        """The pool as a new process finds it, and once it was changed."""
        own = {"local": kept(provider, base=0)}
        providers = Providers({"local": layered(provider)}, "local", templates=own)
        async with assembled(settings, providers, auth=False) as made:
            pools, who = made.services.pools, made.services.anyone
            found = await pools.get(who, "local", "base")
            changed = await pools.change(who, "local", "base", size)
        return [(each.size, each.source) for each in (found, changed)]

    try:
        assert await restarted(1) == [(0, "configuration"), (1, "run_time")]
        assert await restarted(None) == [(1, "run_time"), (0, "configuration")]
        assert (await restarted(None))[0] == (0, "configuration")
    finally:
        await provider.keep_warm("base", 0)
        await provider.warmed()
