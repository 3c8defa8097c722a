"""Questions to people on both databases."""

from dataclasses import replace

import pytest

from paddock.domain.approval import Answer, Approval, Kind, Level, State, answered
from paddock.domain.errors import Conflict, NotFound
from paddock.ports.approvals import ApprovalFilter
from paddock.ports.store import Page
from tests.adapters.store.samples import next_id


def question(team, **changes):
    record = Approval(
        id=next_id("apr"),
        team_id=team.id,
        sandbox_id="sbx_1",
        kind=Kind.EGRESS,
        what="a.example:443",
        created_at=1000.0,
        expires_at=1300.0,
    )
    return replace(record, **changes)


async def add(store, *made):
    await store.write(lambda tx: [tx.approvals.add(one) for one in made] and None)


async def test_everything_about_an_approval_is_kept(store, team, others):
    for changes in (
        {},
        {"detail": {"argv": ["rm", "é\n"]}, "title": "rm", "why": "x", "asked_by": "tok_1"},
        {
            "state": State.ALLOWED_ALWAYS,
            "level": Level.APP,
            "rule": "a.example:443",
            "answered_at": 2.5,
            "answered_by": "usr_1/tok_1",
            "count": 7,
            "last_at": 3.0,
            "note": "n",
            "task_id": "tsk_1",
            "app": "shop",
            "sandbox_name": "box",
            "used": True,
        },
    ):
        kept = question(team, **changes)
        await add(store, kept)
        assert await store.read(lambda tx, one=kept: tx.approvals.get(team.id, one.id)) == kept
        assert await store.read(lambda tx, one=kept: tx.approvals.get("", one.id)) == kept
        assert await store.read(lambda tx, one=kept: tx.approvals.get(others.id, one.id)) is None


async def test_they_are_listed_newest_first_by_team_state_kind_and_sandbox(store, team, others):
    made = [
        question(team),
        question(others),
        question(team, sandbox_id="sbx_2", kind=Kind.COMMAND),
        question(team, state=State.DENIED),
    ]
    await add(store, *made)

    async def listed(page=None, **wanted):
        found = ApprovalFilter(**wanted)
        return await store.read(lambda tx: tx.approvals.list(team.id, found, page or Page()))

    assert await listed() == [made[3], made[2], made[0]]
    assert await listed(Page(1, made[3].id)) == [made[2]]
    assert await listed(states=frozenset({State.PENDING})) == [made[2], made[0]]
    assert await listed(kind=Kind.COMMAND) == [made[2]]
    assert await listed(sandbox_id="sbx_1") == [made[3], made[0]]
    assert await listed(sandbox_id="sbx_1", states=frozenset({State.DENIED})) == [made[3]]


async def test_the_last_time_that_something_was_asked_is_found(store, team):
    made = [
        question(team, state=State.EXPIRED),
        question(team, state=State.DENIED),
        question(team, what="b.example:443"),
        question(team, sandbox_id="sbx_2"),
        question(team, kind=Kind.COMMAND),
    ]
    await add(store, *made)
    found = await store.read(lambda tx: tx.approvals.latest("sbx_1", Kind.EGRESS, "a.example:443"))
    assert found == made[1]
    nothing = await store.read(
        lambda tx: tx.approvals.latest("sbx_9", Kind.EGRESS, "a.example:443")
    )
    assert nothing is None


async def test_what_waits_is_found_by_when_it_expires_and_counted(store, team, others):
    made = [
        question(team, expires_at=3.0),
        question(others, expires_at=1.0),
        question(team, expires_at=2.0, state=State.ALLOWED_ONCE),
        question(team, expires_at=2.0, created_at=5.0),
    ]
    await add(store, *made)
    assert await store.read(lambda tx: tx.approvals.pending(10)) == [made[1], made[3], made[0]]
    assert await store.read(lambda tx: tx.approvals.pending(1)) == [made[1]]
    assert await store.read(lambda tx: tx.approvals.count_pending("sbx_1")) == 3
    assert await store.read(lambda tx: tx.approvals.count_since("sbx_1", 5.0)) == 3
    assert await store.read(lambda tx: tx.approvals.count_since("sbx_9", 0.0)) == 0


async def test_of_two_answers_at_once_one_counts(store, team):
    """Each transaction sees what the one before has done."""
    asked = question(team)
    await add(store, asked)

    def answer(state, who):
        def work(tx):
            current = tx.approvals.get(team.id, asked.id)
            tx.approvals.replace(answered(current, Answer(state), who, 1100.0))

        return work

    await store.write(answer(State.DENIED, "usr_1/tok_1"))
    with pytest.raises(Conflict, match=r"usr_1/tok_1: denied"):
        await store.write(answer(State.ALLOWED_ONCE, "usr_2/tok_2"))
    kept = await store.read(lambda tx: tx.approvals.get(team.id, asked.id))
    assert (kept.state, kept.answered_by) == (State.DENIED, "usr_1/tok_1")
    with pytest.raises(NotFound):
        await store.write(lambda tx: tx.approvals.replace(question(team)))


async def test_old_answers_are_forgotten_and_all_of_a_sandbox(store, team):
    made = [
        question(team, state=State.DENIED, created_at=1.0),
        question(team, created_at=1.0),
        question(team, state=State.DENIED, created_at=9.0),
        question(team, sandbox_id="sbx_2"),
    ]
    await add(store, *made)
    assert await store.write(lambda tx: tx.approvals.prune(5.0, 10)) == 1
    assert await store.write(lambda tx: tx.approvals.prune(5.0, 10)) == 0
    await store.write(lambda tx: tx.approvals.forget("sbx_1"))
    assert await store.read(lambda tx: tx.approvals.list(team.id, ApprovalFilter(), Page())) == [
        made[3]
    ]


async def test_questions_of_a_task_are_found_and_no_others(store, team):
    def about(task, number, **more):
        what = f"{task} {number}"
        return question(team, kind=Kind.QUESTION, what=what, task_id=task, **more)

    first, second = about("tsk_1", "a"), about("tsk_1", "é", state=State.DENIED)
    others = [about("tsk_11", "a"), about("tsk_2", "a"), about("tsk_1", "a", sandbox_id="sbx_2")]
    await add(store, first, second, *others, question(team, what="tsk_1 a"))
    found = await store.read(lambda tx: tx.approvals.of_task("sbx_1", "tsk_1"))
    assert found == [second, first]
