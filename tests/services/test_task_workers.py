"""Workers: every task comes to its end once, whoever dies on the way."""

import asyncio
import random
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import date

import pytest
from sqlalchemy import update

from paddock.adapters.store.task_schema import task as table
from paddock.domain.errors import Unavailable
from paddock.domain.ids import new_id
from paddock.domain.standing import rest_s
from paddock.domain.task import Lease, TaskRecord, TaskState, moved
from paddock.domain.task_queue import TaskLimits
from paddock.domain.task_wish import TaskWish
from paddock.domain.team import Team
from paddock.domain.vitals import Thresholds
from paddock.ports.clock import SystemClock
from paddock.services import task_workers
from paddock.services.task_hold import Fenced, Hold
from paddock.services.task_queue import TaskQueue
from paddock.services.task_workers import TaskWorkers
from tests.adapters.store.conftest import place, postgres_place, sqlite_place, store

EVERY_DATABASE = "test"
__all__ = ["place", "postgres_place", "sqlite_place", "store"]  # fixtures
S = TaskState


@pytest.fixture
async def team(store):
    made = Team(new_id("tem"), new_id("team"), 1.0)
    await store.write(lambda tx: tx.teams.add(made))
    return made


async def submit(store, team, **more):
    task = TaskRecord(new_id("tsk"), team.id, "a", TaskWish("do it", "command"), 1.0, 1.0)
    task = replace(task, **more)
    await store.write(lambda tx: tx.tasks.add(task))
    return task


async def found(store, task):
    return await store.read(lambda tx: tx.tasks.get("", task.id))


def to(state):
    return lambda _tx, task: moved(task, state, 2.0)


class Deeds:
    """What was really done, seen from outside."""

    def __init__(self):
        self.done = []

    async def run(self, hold: Hold):
        """Three deeds, each of which takes a moment, through all states."""
        for name, state in (("one", S.CREATING), ("two", S.RUNNING), ("three", S.COMPLETING)):
            if hold.task.state is not state and not hold.has_done(name):
                await hold.change(to(state))
            await hold.step(name, lambda what=name: self._do(hold, what))
        await hold.change(to(S.COMPLETED))

    async def _do(self, hold, what):
        await asyncio.sleep(random.uniform(0, 0.02))
        self.done.append((hold.task.id, what))
        return what


@asynccontextmanager
async def working(store, run, **more):
    workers = TaskWorkers(store, SystemClock(), run, **more)
    going = asyncio.create_task(workers.run())
    try:
        yield workers
    finally:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)


async def until(holds):
    async with asyncio.timeout(30):
        while not await holds():
            await asyncio.sleep(0.02)


async def test_a_task_goes_through_its_states_once(store, team):
    deeds = Deeds()
    async with working(store, deeds.run) as workers:
        task = await submit(store, team)
        workers.kick()
        await until(lambda: is_over(store, task))
    ended = await found(store, task)
    assert (ended.state, ended.attempts) == (S.COMPLETED, 0)
    assert deeds.done == [(task.id, "one"), (task.id, "two"), (task.id, "three")]


async def is_over(store, *tasks):
    return all([(await found(store, task)).state.is_final for task in tasks])


@pytest.mark.proves("T18")
async def test_a_worker_that_stops_leaves_its_task_to_the_next_at_once(store, team):
    deeds, begun = Deeds(), asyncio.Event()

    async def stuck(hold):
        await hold.change(to(S.CREATING))
        await hold.step("one", lambda: deeds._do(hold, "one"))
        begun.set()
        await asyncio.sleep(60)

    task = await submit(store, team)
    async with working(store, stuck):
        await begun.wait()
    left = await found(store, task)
    assert (left.state, left.lease.owner, left.lease.until) == (S.CREATING, "", 0.0)
    async with working(store, deeds.run):
        await until(lambda: is_over(store, task))
    assert deeds.done == [(task.id, "one"), (task.id, "two"), (task.id, "three")]


async def test_who_was_silent_for_too_long_writes_nothing_more(store, team):
    task = await submit(store, team, lease=Lease("prc_dead", 3, 1.0))
    asleep = await Hold.take(store, SystemClock(), task)
    deeds = Deeds()
    async with working(store, deeds.run):
        await until(lambda: is_over(store, task))
    for write in (
        lambda: asleep.change(to(S.CREATING)),
        lambda: asleep.step("late", lambda: deeds._do(asleep, "late")),
        asleep.let_go,
        asleep.refresh,
    ):
        with pytest.raises(Fenced):
            await write()
    ended = await found(store, task)
    assert ended.state is S.COMPLETED
    names = [step.name for step in await store.read(lambda tx: tx.steps.of(task.id))]
    assert names == ["one", "two", "three"]


async def test_a_lease_that_is_lost_ends_the_work_here(store, team):
    running, ended = asyncio.Event(), asyncio.Event()

    async def work(_hold):
        running.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    task = await submit(store, team)
    async with working(store, work) as workers:
        await running.wait()

        def steal(tx):
            current = tx.tasks.get("", task.id)
            tx.tasks.replace(replace(current, lease=Lease("prc_other", 9, 10**12)))

        await store.write(steal)
        await workers.renew()
        async with asyncio.timeout(5):
            await ended.wait()
    assert (await found(store, task)).lease.owner == "prc_other"


async def test_one_that_ends_every_worker_is_given_up(store, team):
    """Properly first; one that ends whoever tries that, too, is only written off."""
    attempts = task_workers.MOST_ATTEMPTS
    task = await submit(store, team, attempts=attempts, state=S.RUNNING)
    poison = await submit(store, team, attempts=attempts + 3, state=S.RUNNING)
    told = []

    async def give_up(hold, why):
        told.append((hold.task.id, why))
        await hold.change(to(S.FAILED))

    async with working(store, Deeds().run, give_up=give_up):
        await until(lambda: is_over(store, task, poison))
    ended = await found(store, poison)
    assert (ended.state, ended.reason) == (S.FAILED, "crashed")
    assert [task_id for task_id, _ in told] == [task.id]
    assert "taken up" in told[0][1]


async def test_a_lease_that_was_renewed_too_late_is_nobody_elses(store, team):
    """A process that stood still for a while goes on with its tasks, and takes none twice."""
    held, over = [], asyncio.Event()

    async def run(hold):
        held.append(hold)
        await hold.change(to(S.CREATING))
        await over.wait()
        await hold.change(lambda _tx, task: moved(task, S.FAILED, 2.0))

    def lapse(tx):
        current = tx.tasks.get("", task.id)
        tx.tasks.replace(replace(current, lease=replace(current.lease, until=1.0)))

    task = await submit(store, team)
    async with working(store, run) as workers:
        await until(lambda: _true(held))
        await store.write(lapse)
        assert await workers.look() == 0
        assert workers.is_at(task.id)
        await workers.renew()
        assert (await found(store, task)).lease.until > 1.0
        over.set()
        await until(lambda: is_over(store, task))
        await until(lambda: _true(not workers.is_at(task.id)))
    assert len(held) == 1


async def test_one_whose_wish_cannot_be_read_is_in_nobodys_way(store, team):
    bad, good = [await submit(store, team) for _ in range(2)]

    def spoil(tx):
        tx.tasks._connection.execute(
            update(table).where(table.c.id == bad.id).values(wish={"a": 1})
        )

    await store.write(spoil)
    async with working(store, Deeds().run):
        await until(lambda: is_over(store, good))


async def _true(holds):
    return bool(holds)


async def test_who_has_no_turn_waits_and_keeps_nobody_else(store, team):
    deeds = Deeds()
    waiting = await submit(store, team, name="waits")
    going = [await submit(store, team) for _ in range(3)]
    turns = lambda _tx, found: [each for each in found if each.name != "waits"]  # noqa: E731
    async with working(store, deeds.run, turns=turns, most=1):
        await until(lambda: is_over(store, *going))
        assert (await found(store, waiting)).state is S.PENDING


@pytest.mark.proves("T18")
@pytest.mark.parametrize(
    ("count", "deaths", "seed"),
    [(8, 6, 7), pytest.param(25, 20, date.today().toordinal(), marks=pytest.mark.soak)],
)
async def test_many_tasks_and_workers_that_die_at_any_moment(store, team, count, deaths, seed):
    """As several processes would: each worker is ended at random and another begins."""
    chance = random.Random(seed)
    deeds = Deeds()
    tasks = [await submit(store, team) for _ in range(count)]
    for _ in range(deaths):
        if await is_over(store, *tasks):
            break
        with suppress(TimeoutError):
            async with (
                working(store, deeds.run, most=8),
                working(store, deeds.run, most=8),
                asyncio.timeout(chance.uniform(0.02, 0.3)),
            ):
                await asyncio.sleep(60)
    async with working(store, deeds.run):
        await until(lambda: is_over(store, *tasks))
    for task in tasks:
        ended = await found(store, task)
        assert ended.state is S.COMPLETED, ended
        journal = await store.read(lambda tx, of=task.id: tx.steps.of(of))
        assert [step.name for step in journal] == ["one", "two", "three"]


async def test_a_fault_of_ours_ends_no_task_and_is_tried_again(store, team):
    tries = []

    async def run(hold):
        tries.append(hold.task.attempts)
        if len(tries) < 3:
            raise ValueError("a fault")
        await hold.change(lambda _tx, task: moved(task, S.CREATING, 1.0))
        await hold.change(lambda _tx, task: moved(task, S.CANCELLED, 1.0))

    async with working(store, run):
        task = await submit(store, team)
        await until(lambda: is_over(store, task))
    assert tries == [1, 2, 3]


async def test_one_that_cannot_go_on_is_tried_with_growing_pauses_and_never_given_up(store, team):
    tries = []

    async def run(_hold):
        tries.append(SystemClock().wall())
        raise Unavailable("away")

    async with working(store, run):
        task = await submit(store, team)
        await until(lambda: _true(len(tries) >= 3))
    first, second = (rest_s(number, tries[0]) for number in (1, 2))
    assert first < second
    assert tries[1] - tries[0] >= first
    assert tries[2] - tries[1] >= second
    assert not (await found(store, task)).state.is_final


async def test_one_whose_worker_died_before_it_began_is_in_nobodys_way(store, team):
    lapsed = Lease("prc_dead", 3, 1.0)
    task = await submit(store, team, lease=lapsed, sandbox_id="sbx_x")
    now = SystemClock().wall()
    assert await store.read(lambda tx: tx.tasks.busy(now)) == frozenset()
    assert task.id in {each.id for each in await store.read(lambda tx: tx.tasks.pending(now, 9))}


HASTY = Thresholds(claimed_lasts_s=0.2, step_lasts_s=0.2, most_starts=3)


@pytest.mark.proves("H6")
@pytest.mark.parametrize("hangs_in", [S.PENDING, S.CREATING])
async def test_one_whose_worker_does_nothing_with_it_is_given_out_again(store, team, hangs_in):
    deeds, hung = Deeds(), []

    async def run(hold):
        if not hung:
            hung.append(hold)
            if hangs_in is S.CREATING:
                await hold.change(to(S.CREATING))
            await asyncio.Event().wait()
        await deeds.run(hold)

    async with working(store, run, health=HASTY):
        task = await submit(store, team)
        await until(lambda: is_over(store, task))
    assert (await found(store, task)).state is S.COMPLETED
    assert deeds.done == [(task.id, "one"), (task.id, "two"), (task.id, "three")]
    (told,) = await told_of(store, task, "task.stalled")
    assert f"it was {hangs_in} for 0 s and came no step further" in told.data["why"]
    with pytest.raises(Fenced):  # who hung has lost it for good
        await hung[0].refresh()


@pytest.mark.proves("H6")
async def test_one_that_hangs_every_time_fails_and_says_where(store, team):
    held = []

    async def run(hold):
        held.append(hold.task.attempts)
        if hold.task.state is S.PENDING:
            await hold.change(to(S.CREATING))
        await asyncio.Event().wait()

    async with working(store, run, health=HASTY):
        task = await submit(store, team)
        await until(lambda: is_over(store, task))
    ended = await found(store, task)
    assert (ended.state, ended.reason) == (S.FAILED, "crashed")
    assert "it was creating for" in ended.detail
    assert "it was given out 3 times" in ended.detail
    assert len(await told_of(store, task, "task.stalled")) == len(held)


async def test_an_agent_that_works_for_long_is_not_taken_for_one_that_hangs(store, team):
    let_it = asyncio.Event()

    async def run(hold):
        for state in (S.CREATING, S.RUNNING):
            await hold.change(to(state))
        await let_it.wait()
        await hold.change(to(S.COMPLETING))
        await hold.change(to(S.COMPLETED))

    async with working(store, run, health=HASTY):
        task = await submit(store, team)
        await until(lambda: has_state(store, task, S.RUNNING))
        await asyncio.sleep(3 * HASTY.step_lasts_s)
        assert (await found(store, task)).lease.fence == 1
        let_it.set()
        await until(lambda: is_over(store, task))
    assert (await found(store, task)).state is S.COMPLETED


async def test_six_hundred_that_cannot_begin_keep_nobody_behind_them_waiting(store, team):
    works = await submit(store, team, state=S.RUNNING, sandbox_id="sbx_w", lease=HELD)
    blocked = [
        *(waiting(team, wish=TaskWish("x", "command", after=(works.id,))) for _ in range(300)),
        *(waiting(team, sandbox_id="sbx_w") for _ in range(300)),
    ]
    ready = waiting(team)
    await store.write(lambda tx: [tx.tasks.add(each) for each in (*blocked, ready)] and None)
    deeds, queue = Deeds(), TaskQueue(TaskLimits(), SystemClock())
    async with working(store, deeds.run, turns=queue):
        await until(lambda: is_over(store, ready))
    assert {task_id for task_id, _ in deeds.done} == {ready.id}


HELD = Lease("prc_other", 1, 1e12)


def waiting(team, **more):
    made = TaskRecord(new_id("tsk"), team.id, "a", TaskWish("x", "command"), 1.0, 1.0)
    return replace(made, **more)


async def told_of(store, task, kind):
    found = await store.read(lambda tx: tx.events.after(0, 10_000))
    return [each for each in found if each.subject == task.id and each.kind == kind]


async def has_state(store, task, state):
    return (await found(store, task)).state is state
