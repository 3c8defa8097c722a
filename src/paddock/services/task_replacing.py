"""A sandbox that was lost under its task is replaced, and the task given out again.

Whoever takes it up makes the next sandbox as any task's is made: one step after the other, each
done once. Which one that is, and what it is made of, is decided once and on record before it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from paddock.domain import conversation as talks
from paddock.domain import vitals as signs
from paddock.domain.conversation import Conversation, Stage
from paddock.domain.event import EventKind
from paddock.domain.message import MessageState
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.task import Phase, TaskRecord, TaskState, moved
from paddock.domain.task_loss import (
    Loss,
    beginning_prompt,
    going_on_prompt,
    newest,
    step_after,
    why_not,
)
from paddock.domain.task_review import opening, planned_prompt
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Transaction
from paddock.services.changes import Changes
from paddock.services.task_events import note, state_event
from paddock.services.task_hold import Hold
from paddock.services.task_moves import Moves
from paddock.services.task_pause import paused_again
from paddock.services.task_watch import Watching

_LOOKED_AT = Page(100)
_SEEN = frozenset({MessageState.SEEN})
_LEFT = frozenset({TaskState.RUNNING, TaskState.WAITING, TaskState.COMPLETING})


class Replacing:
    """The same for every task."""

    def __init__(self, clock: Clock, changes: Changes, moves: Moves, watching: Watching) -> None:
        self._clock = clock
        self._changes = changes
        self._moves = moves
        self._approvals = watching.approvals
        self._config = watching.config

    async def __call__(self, hold: Hold) -> str:
        """Empty when the task goes on in another sandbox; otherwise in words why it does not."""
        lost = await self._changes.find(hold.task.team_id, hold.task.sandbox_id)
        is_own = hold.task.wish.workspace.makes_one
        if why := why_not(lost, is_own=is_own, is_wanted=self._config.replace_lost):
            return why
        health = self._config.health
        while not (task := await hold.refresh()).is_cancelled:
            verdict = signs.may_restart(task.restarts, self._clock.wall(), health)
            if not verdict.is_allowed:
                return f"no other takes its place after {verdict.why}"
            if not verdict.wait_s:
                break
            await self._moves.rest(hold, verdict.wait_s)
        await hold.change(lambda tx, current: self._replaced(tx, current, lost))
        return "" if not hold.task.is_cancelled else "it was cancelled"

    def _replaced(self, tx: Transaction, task: TaskRecord, lost: SandboxRecord) -> TaskRecord:
        if task.is_cancelled:
            return task  # which is seen to next
        now = self._clock.wall()
        kept = _kept(tx, task)
        as_of = kept.created_at if kept is not None else 0.0
        loss = Loss(
            lost.id,
            now,
            snapshot_id=kept.id if kept is not None else "",
            as_of=as_of,
            app=lost.app,
            directory=task.directory,
        )
        session = task.conversation.own_session if kept is not None else _first_session(tx, task)
        self._approvals.withdraw(tx, task.waits_for, "the sandbox of its agent was lost", now)
        restarts = (*task.restarts, now)
        data = {
            "reason": lost.reason or Reason.PROVIDER_LOST,
            "why": lost.detail,
            "restarts": len(restarts),
            "lost": lost.id,
            "snapshot": loss.snapshot_id,
            "as_of": as_of or None,
        }
        tx.events.append([note(task, EventKind.TASK_RESTARTED, now, data)])
        creating = _creating(tx, task, now)
        return replace(
            creating,
            sandbox_id="",
            directory="",
            checkpoint=task.checkpoint if kept is not None else "",
            restarts=restarts,
            losses=(*task.losses, loss),
            conversation=talks.displaced(task.conversation, session, as_of),
            vitals=None,
        )

    async def forget(self, hold: Hold) -> None:
        """Its agent could not go on with its session: it begins without one, where it is now."""

        def change(_tx: Transaction, task: TaskRecord) -> TaskRecord:
            as_of = task.conversation.came_back or 0.0
            return replace(task, conversation=talks.displaced(task.conversation, "", as_of))

        await hold.change(change)

    async def prompt(self, hold: Hold, *, resumes: bool) -> str:
        """What an agent is told that begins again in the next sandbox, with all that it was told
        since that is as it is."""
        task, talk = hold.task, hold.task.conversation
        as_of = talk.back_to or 0.0
        told = await hold.look(lambda tx, _: _told_since(tx, task.id, as_of))
        if resumes and talk.session and as_of:
            return going_on_prompt(as_of, told)
        return beginning_prompt(_opening(task, talk), as_of, told)


def _creating(tx: Transaction, task: TaskRecord, now: float) -> TaskRecord:
    """Its sandbox is to be made, which is where it begins. What it has waited is not held against
    it, and one that a person has paused stays so."""
    if task.state not in _LEFT:
        return task
    waited = now - (task.waiting_since or now)
    creating = replace(
        moved(paused_again(task), TaskState.CREATING, now),
        phase=None,
        waits_for="",
        waits_rule="",
        waiting_since=None,
        is_resumed=False,
        deadline=task.deadline + waited if task.deadline is not None else None,
    )
    tx.events.append([state_event(replace(creating, sandbox_id=""), now)])
    return creating


def _kept(tx: Transaction, task: TaskRecord) -> SnapshotRecord | None:
    """The newest that there is of what its agent did; also the one that its sandbox was made of,
    if that was lost before."""
    back = task.went_back
    found = list(tx.snapshots.list(task.team_id, task.sandbox_id, _LOOKED_AT))
    before = tx.snapshots.get(task.team_id, back.snapshot_id) if back is not None else None
    if before is not None:
        found.append(before)
    return newest(found, 0.0 if back is not None else _could_begin(tx, task))


def _could_begin(tx: Transaction, task: TaskRecord) -> float:
    """Since when everything is there that its agent needs; never, where it is not."""
    name = step_after(task.losses, Phase.CHECKPOINT)
    return next((each.at for each in tx.steps.of(task.id) if each.name == name), math.inf)


def _first_session(tx: Transaction, task: TaskRecord) -> str:
    """What it was begun with: of the task that it follows, where it works in a copy of that."""
    before = tx.tasks.get(task.team_id, task.wish.follows) if task.wish.follows else None
    return before.conversation.own_session if before is not None else ""


def _told_since(tx: Transaction, task_id: str, as_of: float) -> Sequence[str]:
    read = tx.messages.of(task_id, _SEEN)
    return [each.text for each in read if each.seen_at is not None and each.seen_at > as_of]


def _opening(task: TaskRecord, talk: Conversation) -> str:
    if task.plan and talk.stage is Stage.WORK:
        return planned_prompt(task.wish, task.plan, resumes=False)
    return opening(task.wish, talk.stage)
