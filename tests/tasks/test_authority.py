"""Who may override whom, and that each use of such power is on record with before and after."""

import pytest

from paddock.domain.approval import Answer, State
from paddock.domain.authority import Rank, check_outranks, rank_of, rank_of_rule
from paddock.domain.errors import Conflict, Forbidden
from paddock.domain.task import TaskState
from paddock.domain.team import GRANTS, Principal, Role
from paddock.services.system import system

S = TaskState


async def member(working):
    token = (await working.plane.member(role="member")).token
    return await working.plane.services.access.authenticate(token)


async def audited(working, task, action):
    store = working.plane.services.store
    entries = await store.read(lambda tx: tx.audit.after(0, 100_000))
    return [each for each in entries if each.subject == task.id and each.action == action]


async def still(working, task):
    return await working.until(task, lambda now: now.state is S.WAITING)


@pytest.mark.proves("M8")
def test_a_rule_is_below_a_reviewer_a_member_and_an_admin():
    def who(role):
        return Principal("tem_1", "usr_1", role, GRANTS[role])

    ranks = [
        rank_of_rule("loop"),
        rank_of_rule("review"),
        rank_of(who(Role.MEMBER)),
        rank_of(who(Role.ADMIN)),
    ]
    assert ranks == [Rank.RULE, Rank.REVIEWER, Rank.MEMBER, Rank.ADMIN]
    assert rank_of(system("tem_1", "guardian")) is Rank.RULE
    check_outranks(who(Role.ADMIN), Rank.ADMIN, "it was paused")
    check_outranks(who(Role.MEMBER), Rank.RULE, "it was paused")
    with pytest.raises(Forbidden, match="it was paused by an admin"):
        check_outranks(who(Role.MEMBER), Rank.ADMIN, "it was paused")


@pytest.mark.proves("M8")
async def test_what_an_admin_has_paused_no_member_lets_go_on(working):
    admin, somebody = working.who, await member(working)
    task = await working.begin({"say": "x"}, {"await": 1}, {"say": "done"})
    await working.until(task, lambda now: now.state is S.RUNNING)
    await working.tasks.pause(somebody, task.id)
    await still(working, task)
    await working.tasks.pause(admin, task.id)
    with pytest.raises(Forbidden, match="was paused by an admin"):
        await working.tasks.resume(somebody, task.id)
    assert (await working.get(task)).state is S.WAITING
    await working.tasks.resume(admin, task.id)
    await working.until(task, lambda now: now.state is S.RUNNING)
    paused = await audited(working, task, "task.pause")
    assert [each.detail["after"]["rank"] for each in paused] == [Rank.MEMBER, Rank.ADMIN]
    assert paused[0].detail["before"]["state"] == "running"
    (resumed,) = await audited(working, task, "task.resume")
    assert resumed.detail["before"]["paused"] is True
    assert resumed.detail["before"]["rank"] == Rank.ADMIN
    assert resumed.detail["after"] == {"paused": False}
    await working.tasks.cancel(somebody, task.id)
    assert (await working.ended(task)).state is S.CANCELLED
    (cancelled,) = await audited(working, task, "task.cancel")
    assert cancelled.detail["before"]["state"] == "running"
    assert cancelled.detail["after"] == {"cancelling": True}


@pytest.mark.proves("M8")
async def test_what_a_rule_has_paused_a_member_lets_go_on(working):
    steps = [{"run": "false"}] * 4
    task = await working.begin(*steps, {"sleep": 0.5}, {"say": "x"}, guardian={"loop": "pause"})
    await still(working, task)
    await working.tasks.resume(await member(working), task.id)
    assert (await working.ended(task)).state is S.COMPLETED


@pytest.mark.proves("M8")
async def test_an_answer_is_not_undone_by_another_and_a_revert_is_on_record(working):
    admin, somebody = working.who, await member(working)
    danger = {"run": "git push --force origin main"}
    steps = [{"write": ["a", "1"]}, danger, {"await": 1}, {"say": "done"}]
    asked = await still(working, await working.begin(*steps))
    approvals = working.plane.services.approvals
    await approvals.answer(admin, asked.waits_for, Answer(State.ALLOWED_ONCE, note="go on"))
    with pytest.raises(Conflict):
        await approvals.answer(somebody, asked.waits_for, Answer(State.DENIED))
    ended = await working.ended(asked)
    assert ended.state is S.COMPLETED, ended.detail
    await working.tasks.revert(somebody, asked.id)
    (reverted,) = await audited(working, asked, "task.revert")
    assert reverted.detail["after"] == {"commit": ended.checkpoint}
    assert reverted.detail["before"]["commit"]
