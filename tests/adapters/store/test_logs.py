"""Events and the audit chain on both databases."""

import asyncio
import dataclasses
import time
from itertools import pairwise

import pytest

from paddock.domain.audit import GENESIS, Break, first_break
from paddock.domain.errors import Conflict, InvalidRequest
from paddock.domain.event import Event, EventKind
from paddock.domain.intake import SourceState
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.ports.store import Page, SandboxFilter
from tests.adapters.store.samples import entry, event, sandbox, snapshot
from tests.databases import by_hand


def appending(*events):
    return lambda tx: tx.events.append(events)


async def seqs(store, after=0, limit=100, **wanted):
    found = await store.read(lambda tx: tx.events.after(after, limit, **wanted))
    return [one.seq for one in found]


async def test_events_are_numbered_from_one_and_come_back_as_they_were(store):
    data = {"reason": Reason.OOM, "n": 2**80, "x": 0.1 + 0.2, "text": "a\0\ud800é", "more": [None]}
    first = await store.write(appending(event(data=data, actor="tok_1"), event(subject="b")))
    second = await store.write(appending(event()))
    assert [one.seq for one in (*first, *second)] == [1, 2, 3]
    assert await store.read(lambda tx: tx.events.after(0, 10)) == [*first, *second]
    assert await store.write(appending()) == []


async def test_events_are_read_by_team_subject_and_kind(store):
    a, b = "tem_a", "tem_b"
    other = Event(a, EventKind.SECRET_SET, "x", 1.0)
    await store.write(appending(event(a, "x"), event(b, "y"), event(a, "y"), other))
    assert await seqs(store, team_id=a) == [1, 3, 4]
    assert await seqs(store, team_id=b) == [2]
    assert await seqs(store, subject="y") == [2, 3]
    assert await seqs(store, subject="y", team_id=a) == [3]
    assert await seqs(store, kinds=frozenset({EventKind.SECRET_SET})) == [4]
    assert await seqs(store, kinds=frozenset(EventKind), subject="x") == [1, 4]
    assert await seqs(store, after=1, limit=2) == [2, 3]


async def test_a_number_that_was_given_in_vain_is_given_again(store):
    def fail(tx):
        tx.events.append([event(), event()])
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        await store.write(fail)
    assert [one.seq for one in await store.write(appending(event()))] == [1]


@pytest.mark.proves("U6")
async def test_pruning_takes_the_oldest_and_leaves_no_gaps(store):
    moments = [1.0, 2.0, 9.0, 3.0, 10.0]
    await store.write(appending(*(event(at=at) for at in moments)))

    async def prune(before, limit):
        return await store.write(lambda tx: tx.events.prune(before, limit))

    assert await prune(5.0, 1) == 1
    assert await store.read(lambda tx: tx.events.first_seq()) == 2
    assert await prune(5.0, 10) == 1
    assert await prune(5.0, 10) == 0
    assert await seqs(store) == [3, 4, 5]


async def test_numbers_go_on_when_all_events_are_gone(store):
    assert await store.read(lambda tx: (tx.events.first_seq(), tx.events.last_seq())) == (0, 0)
    await store.write(appending(event(), event()))
    await store.write(lambda tx: tx.events.prune(2000.0, 10))
    assert await store.read(lambda tx: (tx.events.first_seq(), tx.events.last_seq())) == (0, 2)
    assert [one.seq for one in await store.write(appending(event()))] == [3]


@pytest.mark.slow
@pytest.mark.alone
async def test_a_page_takes_no_longer_at_the_end_of_100000_events(store):
    teams = [f"tem_{n % 4}" for n in range(1000)]
    for n in range(100):
        batch = [event(team, f"sbx_{n % 50}") for team in teams]
        await store.write(appending(*batch))
    for wanted in ({}, {"team_id": "tem_1"}, {"team_id": "tem_1", "subject": "sbx_7"}):
        last = 57_500 if "subject" in wanted else 99_000
        early, late = await _quickest(store, (0, last), wanted)
        assert late < 3 * early + 0.001


async def _quickest(store, places, wanted):
    """Of many pages at each of the places, in turns, so that a busy machine harms them alike."""
    taken = {place: [] for place in places}
    for place in places * 25:
        begun = time.perf_counter()
        assert len(await seqs(store, place, 100, **wanted)) == 100
        taken[place].append(time.perf_counter() - begun)
    return [min(times) for times in taken.values()]


@pytest.mark.proves("U5")
async def test_the_chain_holds_and_its_head_is_the_last_link(store):
    assert await store.read(lambda tx: tx.audit.head()) == (0, GENESIS)
    details = [
        {},
        {"n": 1.5, "text": "a\0\ud800é"},
        {1: "x", 10: "y", 9: [True, None]},
        {"t": (1,)},
    ]
    linked = []
    for detail in details:
        linked += await store.write(
            lambda tx, d=detail: tx.audit.append([entry(detail=d), entry("tem_2", at=5)])
        )
    stored = await store.read(lambda tx: tx.audit.after(0, 100))
    assert stored == linked
    assert first_break(stored) is None
    assert await store.read(lambda tx: tx.audit.head()) == (8, stored[-1].hash)
    middle = await store.read(lambda tx: tx.audit.after(3, 2))
    assert first_break(middle, stored[2].head) is None


async def test_the_chain_is_read_by_team(store):
    await store.write(lambda tx: tx.audit.append([entry("a"), entry("b"), entry("a")]))
    ours = await store.read(lambda tx: tx.audit.after(0, 10, team_id="a"))
    assert [(one.seq, one.team_seq) for one in ours] == [(1, 1), (3, 2)]
    assert first_break(ours, team=True) is None
    assert await store.read(lambda tx: tx.audit.head("a")) == ours[-1].team_head
    later = await store.read(lambda tx: tx.audit.after(1, 10, team_id="a"))
    assert later == ours[1:]
    assert await store.write(lambda tx: tx.audit.append([])) == []


@pytest.mark.proves("U5")
@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        ("UPDATE audit SET actor = 'nobody' WHERE seq = 3", Break(3, "its content was changed")),
        (
            "UPDATE audit SET detail = '{\"a\":2}' WHERE seq = 1",
            Break(1, "its content was changed"),
        ),
        ("DELETE FROM audit WHERE seq = 2", Break(3, "entry 2 is missing before it")),
        ("UPDATE audit SET previous = hash WHERE seq = 4", Break(4, "it does not follow")),
    ],
)
async def test_who_changes_the_database_by_hand_is_found_out(store, place, statement, broken):
    await store.write(lambda tx: tx.audit.append([entry(detail={"a": 1}) for _ in range(5)]))
    await by_hand(place, statement)
    found = first_break(await store.read(lambda tx: tx.audit.after(0, 100)))
    assert found is not None
    assert found.seq == broken.seq
    assert found.problem.startswith(broken.problem)


async def test_order_and_numbers_survive_many_writers(store):
    async def write(n):
        return await store.write(appending(event(subject=f"{n}"), event(subject=f"{n}")))

    results = await asyncio.gather(*map(write, range(300)))
    assert all(b.seq == a.seq + 1 for a, b in results)
    assert await seqs(store, limit=1000) == list(range(1, 601))
    assert all(a < b for a, b in pairwise(await seqs(store, limit=1000)))


async def test_a_source_of_events_is_kept_until_its_sandbox_is_forgotten(store, team):
    box = sandbox(team)
    first = SourceState(box.id, "b", 3, ((1, 2),), 5.0)
    second = SourceState(box.id, "a", (1 << 53) - 1, (), 6.0)
    with pytest.raises(Conflict):
        await store.write(lambda tx: tx.sources.put(first))
    await store.write(lambda tx: tx.sandboxes.add(box))
    await store.write(lambda tx: [tx.sources.put(each) for each in (first, second)] and None)
    assert await store.read(lambda tx: tx.sources.get(box.id, "b")) == first
    assert await store.read(lambda tx: tx.sources.get(box.id, "c")) is None
    filled = dataclasses.replace(first, missing=(), changed_at=7.0)
    await store.write(lambda tx: tx.sources.put(filled))
    assert await store.read(lambda tx: tx.sources.list(box.id)) == [second, filled]
    gone = dataclasses.replace(box, state=SandboxState.DELETED)
    await store.write(lambda tx: tx.sandboxes.replace(gone))
    await store.write(lambda tx: tx.sandboxes.purge(2000.0, 10))
    assert await store.read(lambda tx: tx.sources.list(box.id)) == []


async def test_details_are_taken_out_of_the_chain_and_it_holds(store):
    told = [entry(subject=f"sbx_{n % 2}", detail={"name": f"erikas-{n}"}) for n in range(6)]
    await store.write(lambda tx: tx.audit.append([*told, entry("tem_2", subject="sbx_0")]))
    assert await store.write(lambda tx: tx.audit.redact("tem_1", ["sbx_0", "sbx_9"])) == (3, 0)
    assert await store.write(lambda tx: tx.audit.redact("tem_1", ["sbx_0"])) == (0, 0)
    chain = await store.read(lambda tx: tx.audit.after(0, 100))
    assert first_break(chain) is None
    assert [one.is_redacted for one in chain] == [True, False] * 3 + [False]
    assert [one.detail for one in chain[:2]] == [{}, {"name": "erikas-1"}]
    forged = [dataclasses.replace(chain[0], detail={"name": "guessed"}), *chain[1:]]
    assert first_break(forged) == Break(1, "its content was changed")
    assert await store.write(lambda tx: tx.audit.redact("tem_1", [], [1, 2, 7])) == (1, 0)
    chain = await store.read(lambda tx: tx.audit.after(0, 100))
    assert first_break(chain) is None
    assert [one.seq for one in chain if not one.is_redacted] == [4, 6, 7]


async def test_events_of_a_subject_lose_what_is_personal_a_little_at_a_time(store):
    data = {"state": "running", "reason": "user", "name": "erikas", "data": {"x": 1}}
    told = [event(subject="sbx_1" if n != 2 else "sbx_2", data=data) for n in range(5)]
    await store.write(appending(*told))
    assert await store.write(lambda tx: tx.events.forget("sbx_1", 0, 3)) == 4
    assert await store.write(lambda tx: tx.events.forget("sbx_1", 4, 3)) == 5
    assert await store.write(lambda tx: tx.events.forget("sbx_1", 5, 3)) == 0
    kept = await store.read(lambda tx: tx.events.after(0, 100))
    left = {"state": "running", "reason": "user", "forgotten": True}
    assert [one.data for one in kept] == [left, left, data, left, left]


async def test_what_is_an_owners_is_found_also_when_it_is_deleted(store, team, others):
    boxes = [
        sandbox(team, owner="erika"),
        sandbox(team, owner="erika", state=SandboxState.DELETED),
        sandbox(team, owner="max"),
        sandbox(team),
        sandbox(others, owner="erika"),
    ]
    copies = [snapshot(team, owner="erika"), snapshot(team), snapshot(others, owner="erika")]

    def begin(tx):
        for box in boxes:
            tx.sandboxes.add(box)
        for copy in copies:
            tx.snapshots.add(copy)

    await store.write(begin)
    wanted = SandboxFilter(owner="erika", states=frozenset(SandboxState))
    found = await store.read(lambda tx: tx.sandboxes.list(team.id, wanted, Page()))
    assert found == [boxes[1], boxes[0]]
    assert await store.read(lambda tx: tx.snapshots.owned(team.id, "erika", Page())) == [copies[0]]
    await store.write(lambda tx: tx.sandboxes.forget(boxes[0].id))
    assert await store.read(lambda tx: tx.sandboxes.get(team.id, boxes[0].id)) is None


async def test_the_last_events_of_a_subject_are_read_backwards(store):
    await store.write(appending(*(event(subject=f"sbx_{n % 2}") for n in range(10))))
    found = await store.read(lambda tx: tx.events.before(8, 2, subject="sbx_1"))
    assert [one.seq for one in found] == [4, 6]
    assert await store.read(lambda tx: tx.events.before(2, 5, subject="sbx_1")) == []
