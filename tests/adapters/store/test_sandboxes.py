"""Sandboxes on both databases: names, versions, pages, labels, and whose they are."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from paddock.domain.egress import EgressWish, NetworkMode
from paddock.domain.errors import Conflict, InvalidRequest, NotFound
from paddock.domain.lifetime import Clockwork, Lifetime, OnTimeout
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.task import TaskRecord
from paddock.domain.task_wish import TaskWish
from paddock.ports.store import ANY_TEAM, Page, SandboxFilter
from tests.adapters.store import samples, strategies
from tests.adapters.store.samples import next_id, sandbox

ALL = SandboxFilter()


def add(*records):
    def work(tx):
        for record in records:
            tx.sandboxes.add(record)

    return work


async def names(store, team_id, wanted=ALL, page=Page()):  # noqa: B008 - frozen
    found = await store.read(lambda tx: tx.sandboxes.list(team_id, wanted, page))
    return [record.name for record in found]


async def deleted(store, record):
    return await store.write(
        lambda tx: tx.sandboxes.replace(replace(record, state=SandboxState.DELETED))
    )


async def test_everything_about_a_sandbox_is_kept(store, team):
    record = sandbox(
        team,
        "full",
        ref="abc",
        reason=Reason.OOM,
        detail="killed\0 \ud800 é",
        template="base",
        snapshot_id="snp_1",
        parent_id="sbx_1",
        resources=Resources(2.5, 512, 2048, 99),
        labels={"app": "shop", "ünï": "côdé"},
        identity="worktree://host/ünï",
        env={"KEY": "v\0"},
        egress=EgressWish(NetworkMode.ALLOWLIST, "", ("a.example", "!b.example")),
        ports=(80, 443),
        public_ports=frozenset({80}),
        lifetime=Lifetime(60.5, OnTimeout.STOP, None, 5.25, True),
        clock=Clockwork(1.1, 2.2, 3.3, 4.4),
        started_at=0.1 + 0.2,
        version=7,
    )
    await store.write(add(record))
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, record.id)) == record
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, "full")) == record


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(record=strategies.sandboxes)
async def test_whatever_a_sandbox_holds_is_kept(store, team, record):
    record = replace(record, team_id=team.id, name=record.id)
    await store.write(add(record))
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, record.id)) == record


async def test_a_name_is_given_once_per_team(store, team, others):
    first = sandbox(team, "web")
    await store.write(add(first))
    with pytest.raises(Conflict, match=f"the name web belongs to sandbox {first.id}"):
        await store.write(add(sandbox(team, "web")))
    await store.write(add(sandbox(others, "web")))


async def test_a_name_is_free_again_after_its_sandbox_was_deleted(store, team):
    first = sandbox(team, "web")
    await store.write(add(first))
    gone = await deleted(store, first)
    second = sandbox(team, "web")
    await store.write(add(second))
    assert (await store.read(lambda tx: tx.sandboxes.get(team.id, "web"))).id == second.id
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, first.id)) == gone
    await deleted(store, second)
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, "web")) is None


async def test_a_name_is_held_while_its_sandbox_is_being_deleted(store, team):
    await store.write(add(sandbox(team, "web", state=SandboxState.DELETING)))
    with pytest.raises(Conflict):
        await store.write(add(sandbox(team, "web")))


async def test_a_sandbox_cannot_take_another_ones_name(store, team):
    one, two = sandbox(team, "one"), sandbox(team, "two")
    await store.write(add(one, two))
    with pytest.raises(Conflict, match=f"the name one belongs to sandbox {one.id}"):
        await store.write(lambda tx: tx.sandboxes.replace(replace(two, name="one")))
    renamed = await store.write(lambda tx: tx.sandboxes.replace(replace(two, name="three")))
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, "three")) == renamed


async def test_after_a_conflict_the_work_can_go_on(store, team):
    await store.write(add(sandbox(team, "web")))

    def work(tx):
        with pytest.raises(Conflict):
            tx.sandboxes.add(sandbox(team, "web"))
        tx.sandboxes.add(sandbox(team, "web-2"))

    await store.write(work)
    assert await names(store, team.id) == ["web-2", "web"]


async def test_a_change_counts_the_version_and_returns_what_is_stored(store, team):
    record = sandbox(team, "web")
    await store.write(add(record))
    changed = await store.write(
        lambda tx: tx.sandboxes.replace(replace(record, state=SandboxState.PAUSED, ref="x"))
    )
    assert changed == replace(record, state=SandboxState.PAUSED, ref="x", version=1)
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, record.id)) == changed


async def test_a_change_of_what_was_changed_meanwhile_is_a_conflict(store, team):
    record = sandbox(team, "web")
    await store.write(add(record))
    first = await store.write(lambda tx: tx.sandboxes.replace(replace(record, detail="first")))
    with pytest.raises(Conflict, match=r"sandbox web .* was changed since it was read"):
        await store.write(lambda tx: tx.sandboxes.replace(replace(record, detail="second")))
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, record.id)) == first


async def test_of_many_changes_at_once_exactly_one_wins(store, team):
    record = sandbox(team, "web")
    await store.write(add(record))

    async def change(n):
        return await store.write(lambda tx: tx.sandboxes.replace(replace(record, detail=str(n))))

    results = await asyncio.gather(*map(change, range(20)), return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 19
    (winner,) = (result for result in results if not isinstance(result, Conflict))
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, record.id)) == winner


async def test_a_change_of_what_is_not_there_is_not_found(store, team, others):
    with pytest.raises(NotFound):
        await store.write(lambda tx: tx.sandboxes.replace(sandbox(team, "web")))
    record = sandbox(team, "web")
    await store.write(add(record))
    with pytest.raises(NotFound):
        await store.write(lambda tx: tx.sandboxes.replace(replace(record, team_id=others.id)))


async def test_activity_never_goes_backwards_and_makes_no_version(store, team):
    one, two = sandbox(team, "one"), sandbox(team, "two")
    await store.write(add(one, two))
    await store.write(lambda tx: tx.sandboxes.touch({one.id: 2000.0, two.id: 500.0}))
    await store.write(lambda tx: tx.sandboxes.touch({}))
    seen = await store.read(lambda tx: [tx.sandboxes.get(team.id, x.id) for x in (one, two)])
    assert [(record.clock.active_at, record.version) for record in seen] == [(2000.0, 0), (1000, 0)]


async def test_a_change_does_not_forget_activity_seen_since_it_was_read(store, team):
    record = sandbox(team, "web", clock=Clockwork(active_at=1000.0, expires_at=9.0))
    await store.write(add(record))
    await store.write(lambda tx: tx.sandboxes.touch({record.id: 2000.0}))
    changed = await store.write(lambda tx: tx.sandboxes.replace(replace(record, detail="x")))
    assert changed.clock == Clockwork(active_at=2000.0, expires_at=9.0)
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, record.id)) == changed


async def test_a_team_sees_only_its_own(store, team, others):
    ours, theirs = sandbox(team, "ours"), sandbox(others, "theirs", labels={"a": "b"})
    await store.write(add(ours, theirs))
    assert await names(store, team.id) == ["ours"]
    assert await names(store, team.id, SandboxFilter(labels={"a": "b"})) == []
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, theirs.id)) is None
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, "theirs")) is None
    assert await names(store, ANY_TEAM) == ["theirs", "ours"]
    assert await store.read(lambda tx: tx.sandboxes.get(ANY_TEAM, theirs.id)) == theirs


async def test_a_sandbox_of_no_team_is_a_conflict(store, team):
    with pytest.raises(Conflict, match="does not exist"):
        await store.write(add(replace(sandbox(team), team_id="tem_nobody")))


async def test_deleted_ones_are_listed_only_when_asked_for(store, team):
    states = [SandboxState.RUNNING, SandboxState.STOPPED, SandboxState.DELETED]
    await store.write(add(*(sandbox(team, state.value, state=state) for state in states)))
    assert await names(store, team.id) == ["stopped", "running"]
    wanted = SandboxFilter(states=frozenset({SandboxState.DELETED, SandboxState.RUNNING}))
    assert await names(store, team.id, wanted) == ["deleted", "running"]
    assert await names(store, ANY_TEAM, wanted) == ["deleted", "running"]


async def test_filters_by_name_and_provider(store, team):
    made = [("web-1", "local"), ("web-2", "docker"), ("db-1", "local"), ("wEb", "local")]
    await store.write(add(*(sandbox(team, name, provider=at) for name, at in made)))
    assert await names(store, team.id, SandboxFilter(name_prefix="web")) == ["web-2", "web-1"]
    assert await names(store, team.id, SandboxFilter(name_prefix="w_b")) == []
    both = SandboxFilter(name_prefix="web", provider="local")
    assert await names(store, team.id, both) == ["web-1"]


async def test_filters_by_identity_and_by_how_it_begins(store, team):
    made = {"one": "issue 1", "two": "issue 1", "three": "issue 12", "none": ""}
    await store.write(add(*(sandbox(team, name, identity=of) for name, of in made.items())))
    assert await names(store, team.id, SandboxFilter(identity="issue 1")) == ["two", "one"]
    begun = SandboxFilter(identity_prefix="issue 1")
    assert await names(store, team.id, begun) == ["three", "two", "one"]
    assert await names(store, "tem_other", SandboxFilter(identity="issue 1")) == []


async def test_label_filters_need_every_label(store, team):
    made = {
        "both": {"app": "shop", "tier": "web"},
        "app": {"app": "shop"},
        "other": {"app": "blog", "tier": "web"},
        "none": {},
    }
    await store.write(add(*(sandbox(team, name, labels=has) for name, has in made.items())))

    async def having(**labels):
        return await names(store, team.id, SandboxFilter(labels=labels))

    assert await having(app="shop") == ["app", "both"]
    assert await having(app="shop", tier="web") == ["both"]
    assert await having(tier="web") == ["other", "both"]
    assert await having(app="web") == []
    assert await names(store, ANY_TEAM, SandboxFilter(labels={"tier": "web"})) == ["other", "both"]


async def test_labels_are_searched_as_they_were_last_written(store, team):
    record = sandbox(team, "web", labels={"app": "shop", "old": "yes"})
    await store.write(add(record))
    await store.write(lambda tx: tx.sandboxes.replace(replace(record, labels={"app": "blog"})))
    for labels, found in [({"app": "blog"}, ["web"]), ({"app": "shop"}, []), ({"old": "yes"}, [])]:
        assert await names(store, team.id, SandboxFilter(labels=labels)) == found


async def test_a_label_that_is_no_text_is_refused_and_nothing_is_stored(store, team):
    with pytest.raises(InvalidRequest, match="no text"):
        await store.write(add(sandbox(team, "web", labels={"a": "\0"})))
    assert await names(store, team.id) == []


@pytest.mark.parametrize("labels", [{}, {"kind": "even"}], ids=["all", "labelled"])
async def test_pages_are_complete_while_rows_come(store, team, labels):
    """Each that was there before is read once, newest first, whatever is added meanwhile."""
    ids = [samples.next_id("sbx") for _ in range(240)]
    before = [sandbox(team, id=one, labels={"kind": "even"}) for one in ids[::2]]
    await store.write(add(*before))
    later = iter(ids[1::2])
    seen, after = [], ""
    while True:
        wanted, page = SandboxFilter(labels=labels), Page(17, after)
        found = await store.read(lambda tx, w=wanted, p=page: tx.sandboxes.list(team.id, w, p))
        if not found:
            break
        seen += [record.id for record in found]
        after = seen[-1]
        new = [sandbox(team, id=next(later), labels={"kind": "odd"}) for _ in range(5)]
        await store.write(add(*new, sandbox(team)))
    assert len(seen) == len(set(seen))
    assert seen == sorted(seen, reverse=True)
    assert set(seen) >= {record.id for record in before}


async def test_purging_forgets_old_deleted_ones_with_their_labels(store, team):
    gone = [
        sandbox(team, labels={"a": "b"}, state=SandboxState.DELETED, changed_at=float(n))
        for n in range(5)
    ]
    kept = sandbox(team, labels={"a": "b"}, changed_at=0.0)
    await store.write(add(*gone, kept))
    assert await store.write(lambda tx: tx.sandboxes.purge(4.0, 3)) == 3
    assert await store.write(lambda tx: tx.sandboxes.purge(4.0, 3)) == 1
    assert await store.write(lambda tx: tx.sandboxes.purge(4.0, 3)) == 0
    wanted = SandboxFilter(labels={"a": "b"}, states=frozenset(SandboxState))
    assert await names(store, team.id, wanted) == [kept.name, gone[4].name]


async def test_a_deleted_sandbox_is_on_record_for_as_long_as_a_task_of_it(store, team):
    box = sandbox(team, state=SandboxState.DELETED, changed_at=0.0)
    task = TaskRecord(next_id("tsk"), team.id, "a", TaskWish("x", "y"), 0.0, 0.0, sandbox_id=box.id)
    await store.write(add(box))
    await store.write(lambda tx: tx.tasks.add(task))
    assert await store.write(lambda tx: tx.sandboxes.purge(4.0, 3)) == 0
    await store.write(lambda tx: tx.tasks.remove([task.id]))
    assert await store.write(lambda tx: tx.sandboxes.purge(4.0, 3)) == 1
