"""A sandbox that was lost under its task is replaced, and the task given out again.

Whoever takes it up makes the next sandbox as any task's is made: one step after the other, each
done once. Which one that is, and what it is made of, is decided once and on record before it.
"""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from paddock.domain import conversation as talks
from paddock.domain import vitals as signs
from paddock.domain.approval import Approval, Kind
from paddock.domain.conversation import Conversation, Stage
from paddock.domain.errors import Conflict, PaddockError
from paddock.domain.event import EventKind
from paddock.domain.message import MessageState
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.task import Phase, TaskRecord, TaskState, moved
from paddock.domain.task_loss import (
    Loss,
    beginning_prompt,
    going_on_prompt,
    loss_of,
    newest,
    step_after,
    why_not,
)
from paddock.domain.task_review import opening, planned_prompt
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Transaction
from paddock.services.providers import Providers
from paddock.services.task_events import note, state_event
from paddock.services.task_hold import Hold
from paddock.services.task_moves import Moves
from paddock.services.task_pause import paused_again
from paddock.services.task_watch import Watching
from paddock.services.verbs import put_out

_LOOKED_AT = Page(100)
_ENDS_S = 20.0
_SEEN = frozenset({MessageState.SEEN})
_LEFT = frozenset({TaskState.RUNNING, TaskState.WAITING, TaskState.COMPLETING})


class Replacing:
    """The same for every task."""

    def __init__(
        self, clock: Clock, providers: Providers, moves: Moves, watching: Watching
    ) -> None:
        self._clock = clock
        self._providers = providers
        self._moves = moves
        self._approvals = watching.approvals
        self._config = watching.config

    async def __call__(self, hold: Hold) -> str:
        """Empty when the task goes on in another sandbox; otherwise in words why it does not."""
        lost = await hold.look(_sandbox)
        if why := self._why_not(hold.task, lost):
            return why
        while wait_s := self._wait_s(await hold.refresh()):
            await self._moves.rest(hold, wait_s)
        said: list[str] = []

        def change(tx: Transaction, task: TaskRecord) -> TaskRecord:
            now_lost = _sandbox(tx, task)  # somebody may have seen to it while this rested
            said[:] = [self._why_not(task, now_lost)]
            return task if said[0] else self._replaced(tx, task, now_lost)

        await hold.change(change)
        if not said[0]:
            await self._end_machine(lost)
        return said[0]

    def _why_not(self, task: TaskRecord, lost: SandboxRecord) -> str:
        if task.is_cancelled:
            return "nobody wants it any more"
        is_own, is_wanted = task.wish.workspace.makes_one, self._config.replace_lost
        if why := why_not(lost, is_own=is_own, is_wanted=is_wanted):
            return why
        verdict = signs.may_restart(task.restarts, self._clock.wall(), self._config.health)
        return "" if verdict.is_allowed else f"no other takes its place after {verdict.why}"

    def _wait_s(self, task: TaskRecord) -> float:
        """Until another may take its place. Nobody rests whom nobody wants, or whose time is up."""
        now = self._clock.wall()
        if task.is_cancelled or (task.deadline is not None and now >= task.deadline):
            return 0.0
        wait_s = signs.may_restart(task.restarts, now, self._config.health).wait_s
        return wait_s if task.deadline is None else min(wait_s, task.deadline - now)

    async def _end_machine(self, lost: SandboxRecord) -> None:
        """Who does not see it now may see it again, and nothing is to go on in it then. What cannot
        be ended now is when it shows."""
        with suppress(PaddockError, TimeoutError):
            async with asyncio.timeout(_ENDS_S):
                await put_out(self._providers.get(lost.provider), lost)

    def _replaced(self, tx: Transaction, task: TaskRecord, lost: SandboxRecord) -> TaskRecord:
        now, run = self._clock.wall(), task.conversation.run
        kept = _kept(tx, task)
        loss = loss_of(lost, now, run=run, kept=kept, directory=task.directory)
        asked = (*tx.approvals.of_task(lost.id, task.id, Kind.AGENT), *_asked(tx, task))
        for each in asked:
            self._approvals.withdraw(tx, each.id, "the sandbox of its agent was lost", now)
        restarts = (*task.restarts, now)
        data = {
            "reason": lost.reason or Reason.PROVIDER_LOST,
            "why": lost.detail,
            "restarts": len(restarts),
            "lost": lost.id,
            "snapshot": loss.snapshot_id,
            "as_of": loss.as_of or None,
        }
        tx.events.append([note(task, EventKind.TASK_RESTARTED, now, data)])
        return replace(_placed(_creating(tx, task, now), loss), restarts=restarts)

    async def begin_anew(self, hold: Hold) -> bool:
        """What its next sandbox was to be made of is gone as well: it is made as the first was.
        Whether that is so."""
        task = hold.task
        if task.state is not TaskState.CREATING or task.sandbox_id or task.went_back is None:
            return False

        def change(_tx: Transaction, task: TaskRecord) -> TaskRecord:
            return _placed(task, replace(task.losses[-1], snapshot_id="", as_of=0.0))

        await hold.change(change)
        return True

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


def _placed(task: TaskRecord, loss: Loss) -> TaskRecord:
    """On its way to another sandbox, which is made of what the loss says."""
    talk, goes_back = task.conversation, bool(loss.snapshot_id)
    session = talk.own_session if goes_back else talk.origin
    return replace(
        task,
        sandbox_id="",
        directory="",
        checkpoint=task.checkpoint if goes_back else "",
        losses=(*task.losses, loss),
        conversation=talks.displaced(talk, session, loss.as_of),
        vitals=None,
    )


def _sandbox(tx: Transaction, task: TaskRecord) -> SandboxRecord:
    found = tx.sandboxes.get(task.team_id, task.sandbox_id)
    if found is None:
        raise Conflict(f"sandbox {task.sandbox_id} of task {task.id} is not on record any more")
    return found


def _asked(tx: Transaction, task: TaskRecord) -> Sequence[Approval]:
    found = tx.approvals.get(task.team_id, task.waits_for) if task.waits_for else None
    return [found] if found is not None else []


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


def _told_since(tx: Transaction, task_id: str, as_of: float) -> Sequence[str]:
    read = tx.messages.of(task_id, _SEEN)
    return [each.text for each in read if each.seen_at is not None and each.seen_at > as_of]


def _opening(task: TaskRecord, talk: Conversation) -> str:
    if task.plan and talk.stage is Stage.WORK:
        return planned_prompt(task.wish, task.plan, resumes=False)
    return opening(task.wish, talk.stage)
