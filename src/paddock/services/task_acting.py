"""What is done about a task in the guardian's name, and how it goes on after somebody's answer."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from paddock.domain import vitals as signs
from paddock.domain.approval import Approval
from paddock.domain.errors import Unsupported
from paddock.domain.guardian import history_of, kept
from paddock.domain.guardian.policy import RuleName
from paddock.domain.guardian.watching import let_pass, waiting_for
from paddock.domain.message import MESSAGE_PREFIX, Message, Mode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskRecord, TaskState, moved
from paddock.ports.clock import Clock
from paddock.ports.store import Transaction
from paddock.services.approvals import Approvals, TaskQuestion
from paddock.services.guardian import ACTOR
from paddock.services.task_events import message_event, state_event
from paddock.services.task_hold import Hold


class Hands(Protocol):
    """What can be done with a run."""

    @property
    def modes(self) -> frozenset[Mode]: ...

    async def stop(self, why: Reason | None, detail: str = "") -> None: ...
    async def begin_again(self, why: str) -> None: ...
    async def hold_still(self) -> None: ...
    async def go_on(self) -> None: ...


class TaskActing:
    """The guardian's `Acting`, for the task that is held; each deed is done once."""

    def __init__(self, approvals: Approvals, clock: Clock, hold: Hold, hands: Hands) -> None:
        self._approvals = approvals
        self._clock = clock
        self._hold = hold
        self._hands = hands

    async def nudge(self, task_id: str, text: str, *, once: str) -> Mapping[str, Any]:
        mode = _heard_by(self._hands.modes)
        if mode is None:
            raise Unsupported(f"{self._hold.task.agent} hears nothing while it works")
        message_id = f"{MESSAGE_PREFIX}_{task_id.partition('_')[2]}.{once}"
        now = self._clock.wall()

        def change(tx: Transaction, task: TaskRecord) -> TaskRecord:
            if tx.messages.get(task.team_id, message_id) is None:
                _post(tx, Message(message_id, task.team_id, task.id, text, mode, ACTOR, now))
            return task

        await self._hold.change(change)
        return {"message": message_id, "mode": mode}

    async def ask(
        self, task_id: str, question: str, detail: Mapping[str, Any], *, expires_s: float, once: str
    ) -> Mapping[str, Any]:
        rule, why = str(detail.get("rule", "")), str(detail.get("why", ""))

        def change(tx: Transaction, task: TaskRecord) -> TaskRecord:
            wanted = TaskQuestion(
                task_id=task_id,
                sandbox_id=task.sandbox_id,
                team_id=task.team_id,
                title=question,
                why=why,
                detail=dict(detail),
                expires_s=expires_s,
                what=once,
            )
            asked = self._approvals.ask_task_in(tx, wanted)
            return self._waiting(tx, task, asked.id, rule=rule, why=why)

        return await self._wait(change)

    async def pause(self, task_id: str, why: str, *, rule: str, once: str) -> Mapping[str, Any]:
        return await self._wait(lambda tx, task: self._waiting(tx, task, "", rule=rule, why=why))

    async def stop(self, task_id: str, why: str, *, once: str) -> Mapping[str, Any]:
        await self._hands.stop(Reason.EVICTED, why)
        return {"stopping": True}

    async def _wait(
        self, change: Callable[[Transaction, TaskRecord], TaskRecord]
    ) -> Mapping[str, Any]:
        task = await self._hold.change(change)
        await self._hands.hold_still()
        return {"state": task.state, "approval": task.waits_for}

    def _waiting(
        self, tx: Transaction, task: TaskRecord, approval: str, *, rule: str, why: str
    ) -> TaskRecord:
        if task.state is not TaskState.RUNNING:
            return task  # it waits already: one thing after the other
        now = self._clock.wall()
        waiting = replace(
            moved(task, TaskState.WAITING, now, detail=why),
            waits_for=approval,
            waits_rule=rule,
            waiting_since=now,
            watch=kept(waiting_for(history_of(task.watch), rule)),
        )
        tx.events.append([state_event(waiting, now)])
        return waiting


def _heard_by(modes: frozenset[Mode]) -> Mode | None:
    return next((each for each in (Mode.NOW, Mode.TURN) if each in modes), None)


def answered(tx: Transaction, task: TaskRecord) -> Approval | None:
    """What somebody has said to what it waits for, or that nobody has in time."""
    found = tx.approvals.get(task.team_id, task.waits_for) if task.waits_for else None
    return found if found is not None and not found.is_pending else None


def refusal(task: TaskRecord, approval: Approval) -> tuple[Reason, str]:
    """Why it ends, where it was not let go on."""
    reason = Reason.BUDGET if task.waits_rule == RuleName.BUDGET_GONE else Reason.USER
    note = f": {approval.note}" if approval.note else ""
    return reason, f"{approval.title} — {approval.state}{note}"


def let_go_on(
    tx: Transaction, task: TaskRecord, modes: frozenset[Mode], now: float
) -> TaskRecord | None:
    """At work again, if a person wants that; what they have answered in words, the agent reads."""
    approval = answered(tx, task)
    if not task.is_resumed and (approval is None or not approval.state.is_allowed):
        return None
    if approval is not None and approval.note:
        _send(tx, task, approval, modes, now=now)
    return going_on(tx, task, now, by_person=True)


def _send(
    tx: Transaction, task: TaskRecord, approval: Approval, modes: frozenset[Mode], *, now: float
) -> None:
    mode, message_id = _heard_by(modes), f"{MESSAGE_PREFIX}_{approval.id.partition('_')[2]}"
    if mode is not None and tx.messages.get(task.team_id, message_id) is None:
        text, actor = approval.note, approval.answered_by
        _post(tx, Message(message_id, task.team_id, task.id, text, mode, actor, now))


def _post(tx: Transaction, message: Message) -> None:
    tx.messages.add(message)
    tx.events.append([message_event(message.task_id, message, message.queued_at)])


def going_on(tx: Transaction, task: TaskRecord, now: float, *, by_person: bool) -> TaskRecord:
    """At work again; what it has waited is not held against it. A person's word counts for what
    made it wait: a budget that is used up is given once more."""
    waited = now - (task.waiting_since or now)
    more = 1 if by_person and task.waits_rule == RuleName.BUDGET_GONE else 0
    history = let_pass(history_of(task.watch), is_allowed=by_person)
    running = replace(
        moved(task, TaskState.RUNNING, now),
        waits_for="",
        waits_rule="",
        waiting_since=None,
        is_resumed=False,
        held_rank=0,
        deadline=task.deadline + waited if task.deadline is not None else None,
        extensions=task.extensions + more,
        vitals=signs.begun(now),
        watch=kept(history),
    )
    tx.events.append([state_event(running, now)])
    return running
