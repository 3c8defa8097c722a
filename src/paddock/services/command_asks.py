"""Commands that a policy wants to be approved: who starts one waits until somebody has answered."""

import asyncio
import hashlib
import json
from dataclasses import replace
from typing import Any

from paddock.domain import approval as rules
from paddock.domain.approval import Approval, Kind, Level, State
from paddock.domain.broker.masking import Mask
from paddock.domain.errors import ApprovalRequired, InvalidRequest, LimitExceeded, Unavailable
from paddock.domain.event import EventKind
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services.approvals import Approvals, Question
from paddock.services.changes import Changes
from paddock.services.events import EventFeed, Interest
from paddock.services.granted import check_goes_on, task_of
from paddock.services.intake import Inside
from paddock.services.policies import (
    Asked,
    Exempted,
    Holder,
    Policies,
    nobody_approves,
    remedy,
    said,
)

_LONGEST = 16384
_ANSWERS = frozenset({EventKind.APPROVAL_ANSWERED, EventKind.APPROVAL_EXPIRED})
_SLACK_S = 10.0


class CommandAsks:
    """The same command of a sandbox is one question, for all who start it meanwhile."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        approvals: Approvals,
        policies: Policies,
        changes: Changes,
        events: EventFeed,
        inside: Inside,
        timeout_s: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._approvals = approvals
        self._policies = policies
        self._changes = changes
        self._events = events
        self._inside = inside
        self._timeout_s = timeout_s
        approvals.guards[Kind.COMMAND] = self

    async def approve(self, asked: Asked) -> None:
        """Returns once somebody has approved; ApprovalRequired otherwise."""
        if not self._timeout_s:
            await nobody_approves(asked)
        mask = Mask(await self._inside(asked.sandbox))
        try:
            approval, place = await self._store.write(lambda tx: self._ask(tx, asked, mask))
        except LimitExceeded as error:
            raise _refused(asked, f"and nobody is asked: {error.message}") from error
        if approval.is_pending:
            approval = await self._answered(approval, place)
        if not approval.state.is_allowed:
            silent = approval.state is State.EXPIRED
            why = approval.note if silent else "somebody has denied it"
            raise _refused(asked, f"{why} (approval {approval.id})")
        if approval.state is State.ALLOWED_ONCE:
            await self._store.write(lambda tx: _use(tx, approval.id))

    def _ask(self, tx: Transaction, asked: Asked, mask: Mask) -> tuple[Approval, int]:
        """The question as it stands, and where in the log its answer comes after."""
        what, now = _digest(asked), self._clock.wall()
        latest = tx.approvals.latest(asked.sandbox.id, Kind.COMMAND, what)
        task_id = task_of(tx, asked.sandbox)
        if latest is not None and (
            _is_remembered(latest, task_id) or rules.holds_for_s(latest, now)
        ):
            return latest, 0
        question = Question(
            Kind.COMMAND,
            what,
            title=mask.text(asked.ruling.decision.program[:200]),
            why=mask.text(said(asked.ruling)),
            asked_by=asked.principal.actor,
            detail=_detail(asked, mask),
            timeout_s=self._timeout_s,
            task_id=task_id,
        )
        approval = self._approvals.ask(tx, asked.sandbox, question)
        return approval, tx.events.last_seq()

    async def _answered(self, approval: Approval, place: int) -> Approval:
        try:
            async with asyncio.timeout(self._timeout_s + _SLACK_S):
                await self._hear(approval, place)
        except TimeoutError:
            return replace(approval, state=State.EXPIRED, note="nobody answered in time")
        found = await self._store.read(lambda tx: tx.approvals.get(ANY_TEAM, approval.id))
        if found is None or found.is_pending:
            raise Unavailable(
                f"the server ends while approval {approval.id} is waited for",
                remediation="start the command again: it is the same question",
            )
        return found

    async def _hear(self, approval: Approval, place: int) -> None:
        """Until there is an answer, or the server ends."""
        interest = Interest(approval.team_id, approval.sandbox_id, _ANSWERS)
        async for event in self._events.follow(interest, place):
            if event.data.get("approval") == approval.id:
                return

    def effect(self, tx: Transaction, principal: Principal, approval: Approval) -> Approval:
        """What an approval remembers is enough for a task; for good it is a rule of the policy."""
        if approval.state is State.ALLOWED_TASK:
            check_goes_on(tx, approval)
        if approval.state is not State.ALLOWED_ALWAYS:
            return approval
        asked = tx.approvals.get(ANY_TEAM, approval.id)  # with its detail, which goes with this
        sandbox = tx.sandboxes.get(principal.team_id, approval.sandbox_id)
        if asked is None or sandbox is None:
            raise InvalidRequest(f"sandbox {approval.sandbox_name} is not there any more")
        exempted = _exempted(asked, approval.level)
        self._policies.except_in(tx, principal, sandbox, exempted)
        # The rule itself is the policy's to tell: the command may hold what no log should have.
        return replace(approval, rule=exempted.name)

    async def put_in_force(self, approval: Approval) -> None:
        """Who waits hears of it by the event; who comes later is judged by the policy of now."""
        if approval.rule:
            self._changes.forget(approval.sandbox_id)
            await self._policies.load()


def _exempted(asked: Approval, level: Level | None) -> Exempted:
    """All policies that apply have to agree, so the rule belongs to the one that asks."""
    detail = asked.detail
    if level is None or level.value != detail["policy"]:
        raise InvalidRequest(
            f"it is the {detail['policy']}'s policy that asks about this command",
            remediation=f"answer allowed_always with the level {detail['policy']}",
        )
    if detail.get("is_cut") or detail.get("is_masked"):
        why = "is too long for a rule" if detail.get("is_cut") else "holds a secret's value"
        raise InvalidRequest(
            f"the command {why}, so that no rule can be made of it",
            remediation="answer allowed_once or allowed_task",
        )
    holder = Holder(detail["policy"])
    name = f"approved {asked.id}"
    return Exempted(name, holder, detail["rule"], detail["argv"], detail["env"])


def _is_remembered(approval: Approval, task_id: str) -> bool:
    """What was allowed for a task holds in that one; without a task, in the sandbox."""
    is_for_it = approval.task_id in ("", task_id)
    return approval.state is State.ALLOWED_TASK and is_for_it and not approval.used


def _use(tx: Transaction, approval_id: str) -> None:
    """Once is once: the next one asks again."""
    found = tx.approvals.get(ANY_TEAM, approval_id)
    if found is not None and not found.used:
        tx.approvals.replace(replace(found, used=True))


def _digest(asked: Asked) -> str:
    ruling = asked.ruling
    content = [asked.argv, asked.env, asked.cwd, asked.user, ruling.holder, ruling.decision.rule]
    return hashlib.sha256(json.dumps(content, default=dict, sort_keys=True).encode()).hexdigest()


def _detail(asked: Asked, mask: Mask) -> dict[str, Any]:
    """What an answer depends on; of the environment the names, of values what stands for them."""
    shown: list[str] = []
    room = _LONGEST
    words = [mask.text(word) for word in asked.argv]
    for word in words:
        shown.append(word[:room])
        room -= len(shown[-1])
    told: dict[str, Any] = {"argv": shown, "cwd": asked.cwd, "user": asked.user}
    told |= {"env": sorted(asked.env), "rule": asked.ruling.decision.rule}
    told["policy"] = asked.ruling.holder
    told |= {"is_cut": True} if sum(map(len, words)) > _LONGEST else {}
    return told | ({"is_masked": True} if words != list(asked.argv) else {})


def _refused(asked: Asked, why: str) -> ApprovalRequired:
    return ApprovalRequired(f"{said(asked.ruling)}; {why}", remediation=remedy(asked.ruling))
