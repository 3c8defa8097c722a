"""Tasks, their journals and their messages on both databases."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from paddock.adapters.store.task_schema import task as table
from paddock.domain.agent import ToolServer
from paddock.domain.app_verdict import AppHealth
from paddock.domain.budget import Budget, Spent
from paddock.domain.conversation import Conversation, Stage
from paddock.domain.errors import Conflict, NotFound
from paddock.domain.message import Message, MessageState, Mode, delivered
from paddock.domain.reason import Reason
from paddock.domain.task import (
    Checked,
    FileChange,
    Lease,
    Phase,
    Result,
    TaskRecord,
    TaskState,
)
from paddock.domain.task_faults import Fault
from paddock.domain.task_review import Finding, Opinion, Reviewed, Severity
from paddock.domain.task_rounds import CheckState, Outcome, Round
from paddock.domain.task_wish import Check, GivenFile, TaskWish, Workspace
from paddock.ports.store import Page
from paddock.ports.tasks import Output, Step, TaskFilter
from tests.adapters.store.samples import next_id

S = TaskState
WISH = TaskWish("do it", "command")
REVIEWED = Reviewed(1, 3, Opinion.REVISE, (Finding(Severity.NIT, "a nit"),))
RICH = TaskWish(
    "é\n'\"$(x)",
    "codex",
    workspace=Workspace(template="base", resources={"cpus": 2.0}),
    env={"A": "1"},
    files=(GivenFile("a/b", b"\0\xff"),),
    checks=(Check("tests", ("make", "test")),),
    tools=(ToolServer("echo", ("echo",), {"B": "2"}),),
    options={"n": [1]},
    budget=Budget(tokens=5, cost_usd=0.5),
    after=("tsk_1", "tsk_2"),
)


def task(team, **changes):
    made = TaskRecord(next_id("tsk"), team.id, "a", WISH, 1000.0, 1000.0)
    return replace(made, **changes)


async def add(store, *made):
    await store.write(lambda tx: [tx.tasks.add(one) for one in made] and None)


async def test_everything_about_a_task_is_kept(store, team, others):
    for changes in (
        {},
        {"wish": RICH},
        {"conversation": Conversation(2, "go on", "s-1", {"a": [1]}, {"stdout": 7}, said=3)},
        {"conversation": Conversation(3, stage=Stage.REVIEW, aside="s-1"), "reviews": (REVIEWED,)},
        {
            "state": S.FAILED,
            "phase": Phase.AGENT,
            "reason": Reason.BUDGET,
            "spent": Spent(1, 2, 3, 0.25, 4, 2),
            "result": Result(
                "done",
                (FileChange("a", "added", 3, 0),),
                (Checked("tests", 1, "no", state=CheckState.FAILED),),
                AppHealth(CheckState.UNKNOWN, restarted=("web",), changed=("vite.config.ts",)),
                (Round(1, 1, (Outcome("tests", CheckState.FAILED, 1),), "t", fault=Fault.CODE),),
                commit="abc",
                seconds=1.5,
                plan="first this",
                reviews=(REVIEWED,),
            ),
            "restarts": (1.0, 2.5),
            "lease": Lease("prc_1", 7, 12.5),
            "ended_at": 3.0,
            "is_cancelled": True,
        },
    ):
        kept = task(team, **changes)
        await add(store, kept)
        assert await store.read(lambda tx, one=kept: tx.tasks.get(team.id, one.id)) == kept
        assert await store.read(lambda tx, one=kept: tx.tasks.get("", one.id)) == kept
        assert await store.read(lambda tx, one=kept: tx.tasks.get(others.id, one.id)) is None


async def test_they_are_listed_newest_first_and_filtered(store, team, others):
    made = [
        task(team, wish=RICH),
        task(
            team,
            state=S.RUNNING,
            sandbox_id="sbx_9",
            wish=replace(WISH, labels={"of": "night", "by": "me"}),
        ),
        task(
            team,
            batch="night",
            state=S.COMPLETED,
            ended_at=5.0,
            wish=replace(WISH, labels={"of": "night", "by": "you"}),
        ),
        task(others, wish=replace(WISH, labels={"of": "night"})),
    ]
    await add(store, *made)

    async def found(**wanted):
        wish = TaskFilter(**wanted)
        listed = await store.read(lambda tx: tx.tasks.list(team.id, wish, Page(10)))
        return [made.index(one) for one in listed if one in made]

    assert await found() == [2, 1, 0]
    assert await found(agent="codex") == [0]
    assert await found(sandbox_id="sbx_9") == [1]
    assert await found(batch="night") == [2]
    assert await found(states=frozenset({S.RUNNING, S.COMPLETED})) == [2, 1]
    assert await found(has_sandbox=True) == [1]
    assert await found(has_sandbox=False) == [2, 0]
    assert await found(ended_before=5.5) == [2]
    assert await found(ended_before=5.0) == []
    assert await found(labels={"of": "night"}) == [2, 1]
    assert await found(labels={"of": "night", "by": "me"}) == [1]
    assert await found(labels={"of": "night"}, batch="night") == [2]
    assert await found(labels={"of": "day"}) == []
    running = frozenset({S.RUNNING})
    assert await store.read(lambda tx: tx.tasks.count(others.id, running)) == 0


async def test_only_what_is_not_over_and_nobodys_can_be_claimed(store, team):
    free = task(team, state=S.WAITING, lease=Lease(until=5.0))
    held = task(team, state=S.RUNNING, lease=Lease("prc_7", 1, 100.0))
    over = task(team, state=S.COMPLETED, ended_at=1.0)
    await add(store, free, held, over)
    claimable = await store.read(lambda tx: tx.tasks.claimable(50.0, 1000))
    assert free.id in ids(claimable)
    assert not {held.id, over.id} & ids(claimable)
    assert held.id in ids(await store.read(lambda tx: tx.tasks.claimable(101.0, 1000)))
    (mine,) = await store.read(lambda tx: tx.tasks.held("prc_7"))
    # All of it but what is large in its wish.
    assert replace(mine, wish=held.wish) == held
    assert (mine.agent, mine.wish.prompt) == (held.agent, "")


def ids(records):
    return {each.id for each in records}


async def test_one_that_cannot_be_read_is_in_nobodys_way(store, team):
    bad, good = task(team, state=S.RUNNING), task(team, state=S.RUNNING)
    await add(store, bad, good)
    await store.write(
        lambda tx: tx.tasks._connection.execute(
            update(table).where(table.c.id == bad.id).values(body={"name": 7})
        )
    )
    found = ids(await store.read(lambda tx: tx.tasks.claimable(50.0, 1000)))
    assert good.id in found
    assert bad.id not in found


async def test_of_those_that_wait_each_team_shows_its_oldest(store, team, others):
    mine = [task(team) for _ in range(5)]
    theirs = [task(others) for _ in range(2)]
    taken = task(others, lease=Lease("prc_8", 1, 100.0))
    await add(store, *mine, *theirs, taken)
    found = await store.read(lambda tx: tx.tasks.pending(50.0, 1000))
    assert taken.id not in ids(found)
    three = await store.read(lambda tx: tx.tasks.pending(50.0, 3))
    assert [one.id for one in three if one.id in ids(theirs)] == [one.id for one in theirs[:3]]
    of_each = await store.read(lambda tx: tx.tasks.pending(50.0, 1))
    assert len([one for one in of_each if one.team_id == team.id]) == 1


async def test_those_that_cannot_begin_hide_nobody(store, team, others):
    works = task(team, state=S.RUNNING, sandbox_id=next_id("sbx"))
    failed = task(team, state=S.FAILED, ended_at=1.0)
    done = task(others, state=S.COMPLETED, ended_at=1.0)
    shared = next_id("sbx")
    cannot = [
        *(task(team, sandbox_id=works.sandbox_id) for _ in range(3)),
        *(task(team, wish=replace(WISH, after=(done.id, works.id))) for _ in range(3)),
    ]
    could = [
        task(team, wish=replace(WISH, after=(done.id, "tsk_forgotten"))),
        task(team, wish=replace(WISH, after=(works.id, failed.id))),
        task(team, sandbox_id=shared),
        task(team, provider="elsewhere"),
        task(team, provider="elsewhere"),
    ]
    takes_turns = task(team, sandbox_id=shared)
    await add(store, works, failed, done, *cannot, *could, takes_turns)

    async def found(each):
        listed = await store.read(lambda tx: tx.tasks.pending(50.0, each))
        known = {one.id: one for one in (*cannot, *could, takes_turns)}
        return [known[one.id] for one in listed if one.id in known]

    assert await found(10_000) == could
    assert len([one for one in await found(1) if one.provider == "elsewhere"]) == 1
    assert await store.read(lambda tx: tx.tasks.is_awaited(works.id))
    assert await store.read(lambda tx: tx.tasks.is_awaited("tsk_forgotten"))
    assert not await store.read(lambda tx: tx.tasks.is_awaited(could[0].id))


async def test_states_and_busy_sandboxes_are_told(store, team):
    works = task(team, state=S.RUNNING, sandbox_id="sbx_busy")
    waits = task(team, sandbox_id="sbx_free")
    await add(store, works, waits)
    states = await store.read(lambda tx: tx.tasks.states([works.id, waits.id, "tsk_none"]))
    assert states == {works.id: S.RUNNING, waits.id: S.PENDING}
    busy = await store.read(lambda tx: tx.tasks.busy(50.0))
    assert "sbx_busy" in busy
    assert "sbx_free" not in busy


async def test_of_two_changes_from_the_same_look_one_is_refused(store, team):
    made = task(team)
    await add(store, made)
    first = await store.write(lambda tx: tx.tasks.replace(replace(made, name="b")))
    assert first.version == made.version + 1
    with pytest.raises(Conflict):
        await store.write(lambda tx: tx.tasks.replace(replace(made, name="c")))
    assert (await store.read(lambda tx: tx.tasks.get("", made.id))).name == "b"


async def test_what_was_done_is_done_once(store, team):
    made = task(team)
    await add(store, made)
    step = Step(made.id, "sandbox", {"id": "sbx_1", "n": [1, None]}, 5.0)
    await store.write(lambda tx: tx.steps.add(step))
    with pytest.raises(Conflict, match="sandbox"):
        await store.write(lambda tx: tx.steps.add(step))
    await store.write(lambda tx: tx.steps.add(Step(made.id, "checkpoint", None, 6.0)))
    journal = await store.read(lambda tx: tx.steps.of(made.id))
    assert [(each.name, each.output) for each in journal] == [
        ("sandbox", {"id": "sbx_1", "n": [1, None]}),
        ("checkpoint", None),
    ]


async def test_messages_keep_their_order_and_their_receipts(store, team, others):
    made = task(team)
    await add(store, made)
    sent = [
        Message(next_id("msg"), team.id, made.id, text, Mode.NOW, "me", 1.0)
        for text in ("first", "second\né")
    ]
    await store.write(lambda tx: [tx.messages.add(one) for one in sent] and None)
    assert await store.read(lambda tx: tx.messages.of(made.id)) == sent
    await store.write(lambda tx: tx.messages.replace(delivered(sent[0], 2.0)))
    later = await store.read(lambda tx: tx.messages.of(made.id, after=sent[0].id, limit=5))
    assert later == sent[1:]
    queued = frozenset({MessageState.QUEUED})
    assert await store.read(lambda tx: tx.messages.of(made.id, queued)) == [sent[1]]
    assert await store.read(lambda tx: tx.messages.queued()) == [sent[1].id]
    over = replace(made, state=S.FAILED)
    await store.write(lambda tx: tx.tasks.replace(over))
    assert await store.read(lambda tx: tx.messages.queued()) == []
    assert await store.read(lambda tx: tx.messages.get(others.id, sent[0].id)) is None
    gone = replace(sent[0], id=next_id("msg"))
    with pytest.raises(NotFound):
        await store.write(lambda tx: tx.messages.replace(gone))


async def test_what_ended_long_ago_goes_with_all_of_it(store, team):
    old, new = task(team, state=S.FAILED, ended_at=2.0), task(team, state=S.FAILED, ended_at=900.0)
    await add(store, old, new)
    await store.write(lambda tx: tx.steps.add(Step(old.id, "sandbox", 1, 1.0)))
    message = Message(next_id("msg"), team.id, old.id, "x", Mode.NOW, "me", 1.0)
    await store.write(lambda tx: tx.messages.add(message))
    ended = await store.read(lambda tx: tx.tasks.ended(500.0, "", 100_000))
    assert old in ended
    assert new not in ended
    assert old not in await store.read(lambda tx: tx.tasks.ended(500.0, old.id, 100_000))
    assert await store.write(lambda tx: tx.tasks.remove([old.id, "tsk_none"])) == 1
    assert await store.read(lambda tx: tx.tasks.get("", old.id)) is None
    assert await store.read(lambda tx: tx.steps.of(old.id)) == []
    assert await store.read(lambda tx: tx.tasks.get("", new.id)) == new


async def test_raw_output_is_read_in_order_and_goes_with_its_task(store, team):
    made = task(team, ended_at=1.0, state=S.COMPLETED)
    await add(store, made)
    outputs = [
        Output(made.id, run, stream, offset, f"{run}.{offset}".encode())
        for run, stream, offset in ((2, "stdout", 0), (1, "stdout", 9), (1, "stdout", 0))
    ]
    outputs.append(Output(made.id, 1, "stderr", 0, b"oh"))
    await store.write(lambda tx: [tx.outputs.add(each) for each in outputs] and None)

    def read(after, limit):
        return lambda tx: [each.data for each in tx.outputs.of(made.id, after, limit)]

    assert await store.read(read((0, -1), 10)) == [b"1.0", b"1.9", b"2.0"]
    assert await store.read(read((1, 0), 1)) == [b"1.9"]
    assert await store.read(lambda tx: tx.outputs.size(made.id)) == 11
    assert await store.write(lambda tx: tx.tasks.remove([made.id])) == 1
    assert await store.read(lambda tx: tx.outputs.size(made.id)) == 0


async def test_those_at_work_are_counted_by_team_and_provider(store, team, others):
    before = await store.read(lambda tx: tx.tasks.active(50.0))
    await add(
        store,
        task(team, provider="local", state=S.RUNNING),
        task(team, provider="local", state=S.WAITING),
        task(team, provider="local"),
        task(team, provider="docker", state=S.CREATING),
        task(others, provider="local", state=S.COMPLETED),
    )
    counts = await store.read(lambda tx: tx.tasks.counts(team.id))
    assert counts == {"running": 1, "waiting": 1, "pending": 1, "creating": 1}
    at_work = await store.read(lambda tx: tx.tasks.at_work(team.id, 10))
    assert [each.state for each in at_work] == [S.RUNNING, S.WAITING, S.CREATING]
    oldest = await store.read(lambda tx: tx.tasks.oldest_waiting(team.id))
    assert (oldest.state, oldest.provider) == (S.PENDING, "local")
    assert await store.read(lambda tx: tx.tasks.oldest_waiting(others.id)) is None
    active = await store.read(lambda tx: tx.tasks.active(50.0))
    counted = {key: n - before.get(key, 0) for key, n in active.items()}
    assert {key: n for key, n in counted.items() if n} == {
        (team.id, "local"): 2,
        (team.id, "docker"): 1,
    }
