"""A task that waited for an answer when its agent ended: what somebody has said by then counts."""

from dataclasses import replace

import pytest

from paddock.adapters.vault import KeyVault
from paddock.domain.approval import Approval, Kind, State
from paddock.domain.conversation import Conversation
from paddock.domain.ids import new_id
from paddock.domain.message import Mode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.task_wish import TaskWish
from paddock.domain.team import Team
from paddock.ports.clock import SystemClock
from paddock.services.approvals import Approvals
from paddock.services.once import Once
from paddock.services.task_hold import Hold
from paddock.services.task_pause import ask_no_more
from tests.adapters.store.conftest import place, postgres_place, sqlite_place, store

__all__ = ["place", "postgres_place", "sqlite_place", "store"]  # fixtures
pytestmark = pytest.mark.timeout(60)
NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("state", "extensions", "reason"),
    [
        (State.PENDING, 0, None),
        (State.ALLOWED_ONCE, 1, None),
        (State.DENIED, 0, Reason.BUDGET),
    ],
)
async def test_an_answer_that_came_before_the_end_of_the_agent_counts(
    store, state, extensions, reason
):
    clock = SystemClock()
    team = Team(new_id("tem"), new_id("team"), 1.0)
    task_id, sandbox_id = new_id("tsk"), new_id("sbx")
    asked = Approval(
        new_id("apr"), team.id, sandbox_id, Kind.QUESTION, f"{task_id} x", NOW, NOW + 60.0
    )
    asked = replace(asked, state=state, note="be brief", answered_by="somebody", task_id=task_id)
    task = TaskRecord(task_id, team.id, "a", TaskWish("do it", "command"), 1.0, 1.0)
    task = replace(
        task,
        state=TaskState.WAITING,
        sandbox_id=sandbox_id,
        waits_for=asked.id,
        waits_rule="budget_gone",
        waiting_since=NOW,
        conversation=Conversation(run=1, has_ended=True),
    )
    await store.write(lambda tx: tx.teams.add(team))
    await store.write(lambda tx: (tx.approvals.add(asked), tx.tasks.add(task)))
    hold = await Hold.take(store, clock, task)
    approvals = Approvals(store, clock, Once(store, clock, KeyVault([bytes(32)])))
    await ask_no_more(hold, approvals, frozenset({Mode.TURN}), NOW + 1.0)
    now = hold.task
    assert (now.state, now.extensions) == (TaskState.RUNNING, extensions)
    assert now.conversation.why_stopped is reason
    sent = await store.read(lambda tx: tx.messages.of(task.id))
    assert [each.text for each in sent] == (["be brief"] if extensions else [])
    left = await store.read(lambda tx: tx.approvals.get(team.id, asked.id))
    assert left.state is (State.EXPIRED if state is State.PENDING else state)
