"""Snapshots on both databases."""

from dataclasses import replace

import pytest

from paddock.domain.errors import Conflict, NotFound
from paddock.domain.sandbox import Resources
from paddock.ports.store import ANY_TEAM, Page
from tests.adapters.store.samples import snapshot


async def keep(store, *records):
    def work(tx):
        for record in records:
            tx.snapshots.add(record)

    await store.write(work)
    return records


async def names(store, team_id, sandbox_id="", page=Page()):  # noqa: B008 - frozen
    found = await store.read(lambda tx: tx.snapshots.list(team_id, sandbox_id, page))
    return [record.name for record in found]


async def test_everything_about_a_snapshot_is_kept(store, team):
    record = snapshot(
        team,
        "full",
        ref="abc",
        sandbox_id="sbx_1",
        template="base",
        resources=Resources(2.5, 512, 2048, 99),
        labels={"a": "b\0"},
        env={"A": "1", "B": "2"},
        ports=(1, 2),
        size_bytes=2**40,
        automatic=True,
        expires_at=5.5,
    )
    await keep(store, record)
    assert await store.read(lambda tx: tx.snapshots.get(team.id, record.id)) == record
    assert await store.read(lambda tx: tx.snapshots.get(team.id, "full")) == record


async def test_a_name_is_given_once_per_team(store, team, others):
    first, second, _ = await keep(
        store, snapshot(team, "a"), snapshot(team, "b"), snapshot(others, "a")
    )
    with pytest.raises(Conflict, match=f"the name a belongs to snapshot {first.id}"):
        await keep(store, snapshot(team, "a"))
    with pytest.raises(Conflict, match="the name a"):
        await store.write(lambda tx: tx.snapshots.replace(replace(second, name="a")))
    await store.write(lambda tx: tx.snapshots.remove(first.id))
    await keep(store, snapshot(team, "a"))


async def test_a_change_is_kept(store, team):
    (record,) = await keep(store, snapshot(team, "a"))
    changed = replace(record, ref="x", size_bytes=5, expires_at=3.0)
    await store.write(lambda tx: tx.snapshots.replace(changed))
    assert await store.read(lambda tx: tx.snapshots.get(team.id, "a")) == changed
    with pytest.raises(NotFound):
        await store.write(lambda tx: tx.snapshots.replace(snapshot(team, "b")))


async def test_removing_is_for_good_and_can_be_repeated(store, team):
    (record,) = await keep(store, snapshot(team, "a"))
    for _ in range(2):
        await store.write(lambda tx: tx.snapshots.remove(record.id))
    assert await store.read(lambda tx: tx.snapshots.get(team.id, record.id)) is None


async def test_lists_are_newest_first_by_team_and_sandbox(store, team, others):
    made = [(team, "a", "sbx_1"), (team, "b", "sbx_2"), (team, "c", "sbx_1")]
    records = [snapshot(whose, name, sandbox_id=of) for whose, name, of in made]
    theirs = snapshot(others, "d", sandbox_id="sbx_1")
    await keep(store, *records, theirs)
    assert await names(store, team.id) == ["c", "b", "a"]
    assert await names(store, team.id, page=Page(1, records[2].id)) == ["b"]
    assert await names(store, team.id, "sbx_1") == ["c", "a"]
    assert await names(store, ANY_TEAM, "sbx_1") == ["d", "c", "a"]
    assert await store.read(lambda tx: tx.snapshots.get(team.id, theirs.id)) is None
    assert await store.read(lambda tx: tx.snapshots.get(ANY_TEAM, theirs.id)) == theirs


async def test_the_expired_come_first_expired_first(store, team):
    moments = {"a": 30.0, "b": 10.0, "c": None, "d": 20.0, "e": 31.0}
    taken = [snapshot(team, name, expires_at=at, ref=name) for name, at in moments.items()]
    await keep(store, *taken, snapshot(team, "half", expires_at=5.0))

    async def expired(limit):
        found = await store.read(lambda tx: tx.snapshots.expired(30.0, limit))
        return [record.name for record in found]

    assert await expired(10) == ["b", "d", "a"]
    assert await expired(2) == ["b", "d"]
