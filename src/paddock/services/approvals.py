"""The inbox: what people are asked, each question once, and their answers, each once."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paddock.domain import approval as rules
from paddock.domain.approval import APPROVAL_PREFIX, Answer, Approval, Kind
from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Conflict, LimitExceeded, NotFound, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import is_id, new_id
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal, Scope
from paddock.ports.approvals import ApprovalFilter
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Page, Store, Transaction
from paddock.services.lineage import lineage_of
from paddock.services.once import Once, Repeatable

_AT_ONCE = 200
_OF_TASKS = (Kind.QUESTION, Kind.AGENT)
_LIVES = frozenset({SandboxState.CREATING, SandboxState.RUNNING, SandboxState.PAUSED})
_ACTOR = "paddock/approvals"
_log = logging.getLogger(__name__)


class Guard(Protocol):
    """Who asks, and does as was answered."""

    def effect(self, tx: Transaction, principal: Principal, approval: Approval) -> Approval:
        """What an answer changes elsewhere, in the same transaction; with the rule that it made."""

    async def put_in_force(self, approval: Approval) -> None:
        """Afterwards. What fails here is seen to by the guard's own rounds."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be asked."""

    kind: Kind
    what: str
    title: str
    why: str
    asked_by: str
    detail: dict[str, Any]
    timeout_s: float
    """For how long."""
    times: int = 1
    task_id: str = ""


@dataclass(frozen=True, slots=True)
class TaskQuestion:
    """What is to be asked about a task. The same is asked once, and has one answer for good."""

    task_id: str
    sandbox_id: str
    team_id: str
    title: str
    why: str
    detail: dict[str, Any]
    expires_s: float
    what: str = ""
    """What makes it the same; its title unless said."""
    asked_by: str = "paddock/guardian"


class _Answers:
    """Questions about tasks change nothing by themselves: whoever moves the task on reads them."""

    def effect(self, tx: Transaction, principal: Principal, approval: Approval) -> Approval:
        del tx, principal
        rules.check_answers_question(approval)
        return approval

    async def put_in_force(self, approval: Approval) -> None:
        """The event says it to whoever waits."""


class Approvals:
    """Questions come from who guards something; whoever may answers them here."""

    def __init__(self, store: Store, clock: Clock, once: Once) -> None:
        self._store = store
        self._clock = clock
        self._once = once
        self.guards: dict[Kind, Guard] = {Kind.QUESTION: _Answers()}
        self.expiring: dict[Kind, Callable[[Transaction, Approval], None]] = {}
        """Who is to hear, in the same transaction, that nobody has answered."""
        self.news = asyncio.Event()
        """Set whenever something was answered by way of this process."""

    async def list(
        self, principal: Principal, wanted: ApprovalFilter, page: Page
    ) -> Sequence[Approval]:
        principal.require(Scope.APPROVALS_READ)
        return await self._store.read(lambda tx: tx.approvals.list(principal.team_id, wanted, page))

    async def get(self, principal: Principal, approval_id: str) -> Approval:
        principal.require(Scope.APPROVALS_READ)
        return await self._store.read(lambda tx: _found(tx, principal.team_id, approval_id))

    async def answer(
        self, principal: Principal, approval_id: str, answer: Answer, *, key: str = ""
    ) -> Approval:
        """The first answer counts; Conflict, with who gave it, for every other one."""
        principal.require(Scope.APPROVALS_ANSWER)

        def work(tx: Transaction) -> tuple[str, Approval]:
            now = self._clock.wall()
            current = _found(tx, principal.team_id, approval_id)
            sandbox = tx.sandboxes.get(principal.team_id, current.sandbox_id)
            holders = sandbox.holders if sandbox is not None else ()
            rules.check_may_answer(current, lineage_of(tx, principal.actor), holders)
            done = rules.answered(current, answer, principal.actor, now)
            _check_matters(done, sandbox)
            done = self.guards[done.kind].effect(tx, principal, done)
            _write(tx, done, EventKind.APPROVAL_ANSWERED, now)
            return done.id, done

        request = Repeatable(principal, key, f"answer {approval_id}", answer)
        done = await self._once.write(request, work, Approval, stands=lambda _tx, _earlier: True)
        try:
            await self.guards[done.kind].put_in_force(done)
        except PaddockError as error:
            _log.warning("answer not in force yet", extra={"of": done.id, "error": error.message})
        self.news.set()
        return done

    def ask(self, tx: Transaction, sandbox: SandboxRecord, question: Question) -> Approval:
        """The question as it stands: the same one is asked once, and counted.

        LimitExceeded when the sandbox has too many. Whether a task goes on is asked in any case:
        its agent stands still meanwhile, so that it is one question at a time, and what a sandbox
        asks for must not keep anybody from being asked about its agent.
        """
        now = self._clock.wall()
        latest = tx.approvals.latest(sandbox.id, question.kind, question.what)
        if latest is not None and latest.is_pending:
            if not question.times:
                return latest
            again = rules.asked_again(latest, question.times, now, question.task_id)
            tx.approvals.replace(again)
            return again
        if question.kind is not Kind.QUESTION:
            _check_room(tx, sandbox, now)
        asked = Approval(
            id=new_id(APPROVAL_PREFIX),
            team_id=sandbox.team_id,
            sandbox_id=sandbox.id,
            kind=question.kind,
            what=question.what,
            created_at=now,
            expires_at=now + question.timeout_s,
            sandbox_name=sandbox.name,
            app=sandbox.app,
            title=question.title,
            detail=question.detail,
            why=question.why,
            asked_by=question.asked_by,
            task_id=question.task_id,
            count=max(1, question.times),
            last_at=now,
        )
        tx.approvals.add(asked)
        _tell(tx, asked, EventKind.APPROVAL_REQUESTED, now)
        return asked

    async def ask_task(self, question: TaskQuestion) -> Approval:
        """The question as it stands, answered or not; asked again, it is the same."""
        return await self._store.write(lambda tx: self.ask_task_in(tx, question))

    def ask_task_in(self, tx: Transaction, question: TaskQuestion) -> Approval:
        """The same, together with what else is written."""
        sandbox = tx.sandboxes.get(question.team_id, question.sandbox_id)
        if sandbox is None:
            raise NotFound(f"there is no sandbox {question.sandbox_id}")
        digest = hashlib.sha256((question.what or question.title).encode()).hexdigest()[:32]
        what = f"{question.task_id} {digest}"
        latest = tx.approvals.latest(sandbox.id, Kind.QUESTION, what)
        if latest is not None:
            return latest
        asked = Question(
            Kind.QUESTION,
            what,
            title=question.title,
            why=question.why,
            asked_by=question.asked_by,
            detail=question.detail,
            timeout_s=question.expires_s,
            task_id=question.task_id,
        )
        return self.ask(tx, sandbox, asked)

    def withdraw(self, tx: Transaction, approval_id: str, why: str, now: float) -> None:
        """Nobody needs the answer any more."""
        found = tx.approvals.get(ANY_TEAM, approval_id) if approval_id else None
        if found is not None and found.is_pending:
            _write(tx, rules.expired(found, why, now), EventKind.APPROVAL_EXPIRED, now)

    async def of_task(self, task_id: str) -> Sequence[Approval]:
        """What was asked about it, newest first."""

        def read(tx: Transaction) -> Sequence[Approval]:
            task = tx.tasks.get(ANY_TEAM, task_id)
            return tx.approvals.of_task(task.sandbox_id, task.id) if task else []

        return await self._store.read(read)

    async def expire(self) -> int:
        """Whatever nobody answered in time; how many that were."""
        now = self._clock.wall()
        if not await self._store.read(lambda tx: bool(_over(tx, now))):
            return 0

        def write(tx: Transaction) -> int:
            over = _over(tx, now)
            for approval, why in over:
                done = rules.expired(approval, why, now)
                _write(tx, done, EventKind.APPROVAL_EXPIRED, now)
                if (hear := self.expiring.get(done.kind)) is not None:
                    hear(tx, done)
            return len(over)

        return await self._store.write(write)


def _over(tx: Transaction, now: float) -> list[tuple[Approval, str]]:
    """Those that have waited long enough, or whose sandbox has, with why."""
    found = []
    for approval in tx.approvals.pending(_AT_ONCE):
        if approval.expires_at <= now:
            found.append((approval, "nobody answered in time"))
        elif why := _in_vain(tx, approval):
            found.append((approval, why))
    return found


def _in_vain(tx: Transaction, approval: Approval) -> str:
    """Why nobody needs an answer any more; empty when somebody does."""
    if (
        approval.task_id and approval.kind in _OF_TASKS
    ):  # a task that waits may have its sandbox stopped meanwhile
        task = tx.tasks.get(ANY_TEAM, approval.task_id)
        return "its task is over" if task is None or task.state.is_final else ""
    sandbox = tx.sandboxes.get(ANY_TEAM, approval.sandbox_id)
    lives = sandbox is not None and sandbox.state in _LIVES
    return "" if lives else "the sandbox does not run any more"


def _found(tx: Transaction, team_id: str, approval_id: str) -> Approval:
    found = tx.approvals.get(team_id, approval_id) if is_id(approval_id, APPROVAL_PREFIX) else None
    if found is None:
        raise NotFound(
            f"there is no approval {approval_id[:80]}",
            remediation="`paddock approvals ls` shows what is asked",
        )
    return found


def _check_matters(approval: Approval, sandbox: SandboxRecord | None) -> None:
    if sandbox is None or sandbox.is_gone:
        raise Conflict(
            f"approval {approval.id} is about sandbox {approval.sandbox_name}, which was deleted",
            remediation="nothing waits for an answer any more; `paddock approvals ls` shows what "
            "does",
        )


def _check_room(tx: Transaction, sandbox: SandboxRecord, now: float) -> None:
    if tx.approvals.count_pending(sandbox.id) >= rules.MOST_PENDING:
        raise LimitExceeded(
            f"sandbox {sandbox.name} has {rules.MOST_PENDING} questions that nobody has answered",
            remediation="answer some of them: `paddock approvals ls`",
        )
    if tx.approvals.count_since(sandbox.id, now - 3600) >= rules.MOST_AN_HOUR:
        raise LimitExceeded(
            f"sandbox {sandbox.name} has asked {rules.MOST_AN_HOUR} questions within an hour",
            remediation="allow what it needs beforehand: `paddock egress allow`",
        )


def _write(tx: Transaction, approval: Approval, kind: EventKind, now: float) -> None:
    tx.approvals.replace(approval)
    _tell(tx, approval, kind, now)


def _tell(tx: Transaction, approval: Approval, kind: EventKind, now: float) -> None:
    """Under the sandbox, so that it is forgotten with it."""
    actor = {
        EventKind.APPROVAL_REQUESTED: approval.asked_by,
        EventKind.APPROVAL_ANSWERED: approval.answered_by,
    }.get(kind, _ACTOR)
    data = told(approval)
    team, subject = approval.team_id, approval.sandbox_id
    events = [Event(team, kind, subject, now, data, actor)]
    if approval.task_id and approval.kind not in _OF_TASKS:  # of those `task.waiting` tells
        events.append(Event(team, EventKind.TASK_APPROVAL, approval.task_id, now, data, actor))
    tx.events.append(events)
    tx.audit.append([AuditEntry(team, actor, kind, subject, now, data)])


def told(approval: Approval) -> dict[str, Any]:
    """What events and the audit log say of it: never what only who answers should see."""
    data: dict[str, Any] = {
        "approval": approval.id,
        "name": approval.sandbox_name,
        "kind": approval.kind,
        "title": approval.title,
        "why": approval.why,
        "state": approval.state,
        "count": approval.count,
        "asked_by": approval.asked_by,
        "expires_at": approval.expires_at,
    }
    more = {
        "app": approval.app,
        "task": approval.task_id,
        "answered_by": approval.answered_by,
        "level": approval.level,
        "rule": approval.rule,
        "note": approval.note,
    }
    return data | {name: value for name, value in more.items() if value}
