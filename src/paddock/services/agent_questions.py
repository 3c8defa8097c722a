"""Questions that agents put to people by themselves, and how the answers reach them.

The answer is a message to the agent, written in the transaction that answers: whoever moves the
task on delivers it as any other. An agent that works gets it as soon as it can be told; one whose
run has ended begins another one with it.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from paddock.domain import approval as rules
from paddock.domain.approval import APPROVAL_PREFIX, Approval, Kind, State
from paddock.domain.desk.saying import MOST_OPEN, Ask
from paddock.domain.errors import InvalidRequest, LimitExceeded, NotFound
from paddock.domain.message import MESSAGE_PREFIX, Message, Mode
from paddock.domain.task import TaskRecord
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Transaction
from paddock.services.approvals import Approvals, Question
from paddock.services.task_events import message_event

Modes = Callable[[str], frozenset[Mode]]
"""How an agent of this name can be told something while it works."""


class AgentQuestions:
    """The guard of their kind."""

    def __init__(
        self, approvals: Approvals, clock: Clock, *, modes: Modes, timeout_s: float
    ) -> None:
        self._approvals = approvals
        self._clock = clock
        self._modes = modes
        self._timeout_s = timeout_s
        approvals.guards[Kind.AGENT] = self
        approvals.expiring[Kind.AGENT] = self.expired

    def ask(self, tx: Transaction, task: TaskRecord, asked: Ask, *, once: str) -> Approval:
        """On record from then on. The same call again, or the same words while they are open, is
        the same question."""
        sandbox = tx.sandboxes.get(task.team_id, task.sandbox_id)
        if sandbox is None:
            raise NotFound(f"there is no sandbox {task.sandbox_id}")
        what = f"{task.id} {hashlib.sha256(once.encode()).hexdigest()[:32]}"
        if (known := tx.approvals.latest(sandbox.id, Kind.AGENT, what)) is not None:
            return known
        waiting = pending(tx, task)
        for each in waiting:
            if each.title == asked.question:
                return each
        if len(waiting) >= MOST_OPEN:
            raise LimitExceeded(
                f"{MOST_OPEN} questions of this task wait for an answer",
                remediation="end your turn: the answers come as your next message",
            )
        question = Question(
            Kind.AGENT,
            what,
            title=asked.question,
            why=_why(asked),
            asked_by=task.id,
            detail={"options": list(asked.options)} if asked.options else {},
            timeout_s=min(asked.timeout_s or self._timeout_s, self._timeout_s),
            task_id=task.id,
        )
        return self._approvals.ask(tx, sandbox, question)

    def effect(self, tx: Transaction, principal: Principal, approval: Approval) -> Approval:
        """What was answered, the agent is told; an option may be said by its number."""
        del principal
        rules.check_answers_question(approval)
        asked = tx.approvals.get(ANY_TEAM, approval.id)
        options = [str(each) for each in asked.detail.get("options", ())] if asked else []
        if approval.state.is_allowed:
            approval = replace(approval, note=_chosen(approval, options))
        self._send(tx, approval)
        return approval

    async def put_in_force(self, approval: Approval) -> None:
        """The event says it to whoever waits."""

    def expired(self, tx: Transaction, approval: Approval) -> None:
        """Nobody has answered."""
        self._send(tx, approval)

    def _send(self, tx: Transaction, approval: Approval) -> None:
        task = tx.tasks.get(ANY_TEAM, approval.task_id)
        if task is None or task.state.is_final or task.is_cancelled:
            return
        modes = self._modes(task.at_work)
        now, actor = self._clock.wall(), approval.answered_by or "paddock/approvals"
        mode = Mode.NOW if Mode.NOW in modes else Mode.TURN
        message_id = f"{MESSAGE_PREFIX}_{approval.id.partition('_')[2]}"
        if tx.messages.get(task.team_id, message_id) is None:
            sent = Message(message_id, task.team_id, task.id, _told(approval), mode, actor, now)
            tx.messages.add(sent)
            tx.events.append([message_event(task.id, sent, now)])


def _why(asked: Ask) -> str:
    """With the options, so that they are seen wherever the question is."""
    options = (f"{number} {each}" for number, each in enumerate(asked.options, 1))
    return f"its agent asks: {', '.join(options)}" if asked.options else "its agent asks"


def pending(tx: Transaction, task: TaskRecord) -> Sequence[Approval]:
    """What its agent has asked and nobody has answered, the oldest first."""
    if not task.sandbox_id:
        return []
    found = tx.approvals.of_task(task.sandbox_id, task.id, Kind.AGENT)
    return [each for each in reversed(found) if each.is_pending]


def is_answer(tx: Transaction, message: Message) -> bool:
    """Whether a message is what somebody has answered to an agent."""
    question = f"{APPROVAL_PREFIX}_{message.id.partition('_')[2]}"
    found = tx.approvals.get(message.team_id, question)
    return found is not None and found.kind is Kind.AGENT


def _chosen(approval: Approval, options: Sequence[str]) -> str:
    said = approval.note.strip()
    if not said:
        raise InvalidRequest(
            f"approval {approval.id} is a question, and the answer has no words",
            remediation=f'`paddock approvals answer {approval.id} --say "…"`, or deny it',
        )
    if said.isascii() and said.isdigit() and 1 <= int(said) <= len(options):
        return options[int(said) - 1]
    return said


def _told(approval: Approval) -> str:
    asked = f"You asked: {approval.title}\n"
    if approval.state.is_allowed:
        return f"{asked}The answer: {approval.note}"
    if approval.state is State.DENIED:
        note = f": {approval.note}" if approval.note else ""
        return f"{asked}The answer was refused{note}. Decide by yourself, or end."
    return f"{asked}There is no answer: {approval.note}. Decide by yourself, or end."
