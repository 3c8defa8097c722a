"""Quotas in the database: what counts against them, also when rows come and go."""

from dataclasses import replace

from paddock.adapters.store.store import open_store
from paddock.domain.event import Event
from paddock.domain.quota import MIB, QuotaName, Usage
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.volume import DEFAULT_MIB, VolumeRecord, VolumeState
from paddock.ports.quotas import INSTALLATION
from paddock.ports.tasks import Output
from tests.adapters.store.conftest import new_team
from tests.adapters.store.older import back_to
from tests.adapters.store.samples import next_id, sandbox, snapshot
from tests.adapters.store.test_tasks import task
from tests.databases import by_hand

Q = QuotaName
BIG = Resources(cpus=2.5, memory_mib=2048, disk_mib=100)


def volume(team, size_mib):
    return VolumeRecord(
        next_id("vol"), team.id, next_id("vol")[4:], "local", VolumeState.READY, 1.0, size_mib
    )


def event(team, subject, at=1000.0, **data):
    return Event(team.id, "custom.x", subject, at, data)


async def test_a_team_has_its_own_limits_before_the_installations(store, team, others):
    def write(tx):
        tx.quotas.put(INSTALLATION, {Q.SANDBOXES: 5, Q.CPUS: 8.0})
        tx.quotas.put(team.id, {Q.SANDBOXES: None, Q.TASKS: 3})

    await store.write(write)
    mine = await store.read(lambda tx: (tx.quotas.limits(team.id), tx.quotas.in_force(team.id)))
    assert mine == ({Q.SANDBOXES: None, Q.TASKS: 3}, {Q.SANDBOXES: None, Q.CPUS: 8.0, Q.TASKS: 3})
    assert await store.read(lambda tx: tx.quotas.in_force(others.id)) == {Q.SANDBOXES: 5, Q.CPUS: 8}
    await store.write(lambda tx: tx.quotas.reset(team.id, frozenset({Q.SANDBOXES, Q.DISK_MIB})))
    in_force = await store.read(lambda tx: tx.quotas.in_force(team.id))
    assert in_force == {Q.SANDBOXES: 5, Q.CPUS: 8.0, Q.TASKS: 3}


async def test_what_a_team_has_is_added_up_and_nothing_of_others(store, team, others):
    def fill(tx):
        for whose in (team, team, others):
            tx.sandboxes.add(sandbox(whose, resources=BIG))
        tx.sandboxes.add(sandbox(team, resources=BIG, state=SandboxState.DELETED))
        tx.sandboxes.add(sandbox(team, resources=BIG, state=SandboxState.FAILED))
        tx.snapshots.add(snapshot(team, size_bytes=3 * MIB))
        tx.snapshots.add(snapshot(team))
        tx.snapshots.add(snapshot(others, size_bytes=500 * MIB))
        for each in (volume(team, 64), volume(others, None)):
            tx.volumes.add(each)
        tx.quotas.put_build_file(team.id, "a", 2 * MIB, 1.0)
        tx.quotas.put_build_file(team.id, "a", MIB, 2.0)
        tx.quotas.put_build_file(others.id, "a", MIB, 1.0)
        tx.tasks.add(task(team))

    await store.write(fill)
    used = await store.read(lambda tx: tx.quotas.usage(team.id))
    # Three disks of sandboxes, a snapshot and one that is being taken, a volume, a build's file.
    disk = 3 * 100 + 3 + 1 + 64 + 1
    assert used == Usage(3, 5.0, 4096, disk, 1, 0.0)
    await store.write(lambda tx: tx.quotas.forget_build_files(team.id, 3.0))
    assert (await store.read(lambda tx: tx.quotas.usage(team.id))).disk_mib == disk - 1
    assert await store.read(lambda tx: tx.quotas.build_file_bytes(others.id)) == MIB


async def test_a_volume_without_a_size_counts_as_if_it_had_the_usual_one(store, team):
    await store.write(lambda tx: tx.volumes.add(volume(team, None)))
    used = await store.read(lambda tx: tx.quotas.usage(team.id))
    assert used == Usage(disk_mib=float(DEFAULT_MIB))


async def test_a_sandbox_that_changes_counts_as_it_is_now(store, team):
    box = sandbox(team, resources=BIG)
    await store.write(lambda tx: tx.sandboxes.add(box))
    smaller = replace(box, resources=Resources(cpus=1.0, memory_mib=512, disk_mib=50))
    await store.write(lambda tx: tx.sandboxes.replace(smaller))
    assert await store.read(lambda tx: tx.quotas.usage(team.id)) == Usage(1, 1.0, 512, 50.0)


async def test_absurd_amounts_are_added_up_all_the_same(store, team):
    absurd = Resources(cpus=1e300, memory_mib=10**30, disk_mib=10**30)
    for _ in range(3):
        await store.write(lambda tx: tx.sandboxes.add(sandbox(team, resources=absurd)))
    used = await store.read(lambda tx: tx.quotas.usage(team.id))
    assert used.sandboxes == 3
    assert min(used.cpus, used.memory_mib, used.disk_mib) > 1e15


async def sizes(store, team, *subjects):
    return await store.read(
        lambda tx: [tx.quotas.stored(team.id, each) for each in ("", *subjects)]
    )


async def test_stored_events_are_counted_until_they_are_removed(store, team, others):
    await store.write(
        lambda tx: tx.events.append(
            [event(team, "a", text="x" * 1000), event(team, "b", 2000.0), event(others, "a")]
        )
    )
    everything, a, b = await sizes(store, team, "a", "b")
    assert a > 1000 > b > 0
    assert everything == a + b
    await store.write(lambda tx: tx.events.append([event(team, "a", 2000.0)]))
    assert (await sizes(store, team, "a"))[1] == a + b
    await store.write(lambda tx: tx.events.prune(1500.0, 1))
    assert await sizes(store, team, "a", "b") == [2 * b, b, b]
    await store.write(lambda tx: tx.events.prune(9000.0, 100))
    assert await sizes(store, team, "a", "b") == [0, 0, 0]


async def test_what_is_forgotten_of_an_event_counts_no_more(store, team):
    await store.write(lambda tx: tx.events.append([event(team, "a", text="x" * 1000)]))
    await store.write(lambda tx: tx.events.forget("a", 0, 10))
    assert 0 < (await sizes(store, team))[0] < 300
    await store.write(lambda tx: tx.events.prune(9000.0, 100))
    assert await sizes(store, team, "a") == [0, 0]


async def test_output_of_agents_is_counted_until_its_task_is_removed(store, team):
    one = task(team)

    def write(tx):
        tx.tasks.add(one)
        tx.outputs.add(Output(one.id, 1, "stdout", 0, b"x" * 500))
        tx.outputs.add(Output(one.id, 1, "stdout", 500, b"y" * 500))

    await store.write(write)
    everything, own = await sizes(store, team, one.id)
    assert everything == own > 1000
    await store.write(lambda tx: tx.tasks.remove([one.id]))
    assert await sizes(store, team, one.id) == [0, 0]


async def test_a_database_from_before_is_counted(bare_place):
    """What is there when the version with quotas comes counts like what is added later."""
    async with open_store(bare_place) as store:
        team = await new_team(store, "ours")
        one = task(team)

        def fill(tx):
            tx.sandboxes.add(sandbox(team, resources=BIG))
            tx.snapshots.add(snapshot(team, size_bytes=5 * MIB))
            tx.tasks.add(one)
            tx.outputs.add(Output(one.id, 1, "stdout", 0, b"x" * 500))
            tx.events.append([event(team, "a", text="ä" * 100), event(team, one.id)])

        await store.write(fill)
        before = await counted(store, team, one)
    await by_hand(bare_place, *back_to("0016"))
    async with open_store(bare_place) as store:
        assert await counted(store, team, one) == before
        assert before[0].disk_mib == BIG.disk_mib + 5


async def counted(store, team, one):
    return await store.read(lambda tx: tx.quotas.usage(team.id)), await sizes(
        store, team, "a", one.id
    )
