"""What sandboxes want to reach and no rule is about: people are asked, gateways told."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum

from paddock.domain import approval as approvals
from paddock.domain.approval import Approval, Kind, Level, State
from paddock.domain.egress import NetworkMode, OnBlock
from paddock.domain.egress.asking import rule_for
from paddock.domain.egress.deciding import judge_connection
from paddock.domain.egress.names import normal
from paddock.domain.egress.policy import MOST_RULES
from paddock.domain.egress.rule import parse
from paddock.domain.errors import InvalidRequest, LimitExceeded, PaddockError
from paddock.domain.records import SandboxRecord
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.egress import Doorkeeper, Verdict, Wanted
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services.approvals import Approvals, Question
from paddock.services.changes import Changes
from paddock.services.egress import Egress
from paddock.services.egress_changes import Holder, check_rules
from paddock.services.granted import Granted, check_goes_on, task_of
from paddock.services.intake import Inside
from paddock.services.name_masks import name_mask

_log = logging.getLogger(__name__)
EVERY_S = 0.25
_REFUSED_S = 30.0
_WHY = "no rule allows it"
_HOLDS_VALUE = f"{_WHY}, and nobody is asked: there is a secret's value in its name"


class _Then(Enum):
    """What is to be done about a place that is not settled."""

    WAIT = "wait"
    RULE = "rule"
    """A rule allows it: the gateway has not heard of it."""


_Outcome = Verdict | _Then


class EgressAsks:
    """Gateways tell all that is waited for, every time, and the store knows what was answered: so
    either may be killed at any moment, and both go on where they were."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        approvals: Approvals,
        egress: Egress,
        granted: Granted,
        changes: Changes,
        doors: Mapping[str, Doorkeeper],
        inside: Inside,
        timeout_s: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._approvals = approvals
        self._egress = egress
        self._granted = granted
        self._changes = changes
        self._doors = doors
        self._inside = inside
        self._timeout_s = timeout_s
        approvals.guards[Kind.EGRESS] = self

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._approvals.news.clear()
            try:
                await self.look()
            except PaddockError as error:
                _log.warning("approvals not attended to", extra={"error": error.message})
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._approvals.news.wait()

    async def look(self) -> None:
        await self._approvals.expire()
        if await self._granted.end():
            await self._egress.apply()
        for name, door in self._doors.items():
            try:
                held = await door.wanted()
            except PaddockError as error:
                _log.warning("nobody asked", extra={"of": name, "error": error.message})
                continue
            for wanted in held:
                try:
                    await self._attend(door, wanted)
                except PaddockError as error:  # others are not kept waiting for it
                    told = {"of": wanted.sandbox, "error": error.message}
                    _log.warning("nobody asked", extra=told)

    async def _attend(self, door: Doorkeeper, wanted: Wanted) -> None:
        outcome = await self._store.read(lambda tx: self._known(tx, wanted))
        if outcome is None:
            outcome = await self._unaskable(wanted) or await self._asked(wanted)
        if isinstance(outcome, Verdict):
            await door.settle(wanted, outcome)
        elif outcome is _Then.RULE:
            sandbox = await self._changes.find(ANY_TEAM, wanted.sandbox)
            await self._egress.apply(sandbox)

    async def _unaskable(self, wanted: Wanted) -> Verdict | None:
        """What is asked is kept, and an answer may become a rule: neither is to hold a value, and a
        rule about what stands for one would be about no host."""
        sandbox = await self._changes.find(ANY_TEAM, wanted.sandbox)
        mask = await name_mask(self._store, self._inside, sandbox)
        if mask.text(wanted.host) == wanted.host:
            return None
        _log.warning("name with a secret's value refused", extra={"id": sandbox.id})
        return Verdict(False, _HOLDS_VALUE, _REFUSED_S)

    async def _asked(self, wanted: Wanted) -> _Outcome:
        try:
            return await self._store.write(lambda tx: self._ask(tx, wanted))
        except LimitExceeded as error:
            return Verdict(False, f"{_WHY}, and nobody is asked: {error.message}", _REFUSED_S)

    def _known(self, tx: Transaction, wanted: Wanted) -> _Outcome | None:
        """What is known without asking; None when somebody has to be asked, or it is counted."""
        sandbox = tx.sandboxes.get(ANY_TEAM, wanted.sandbox)
        if sandbox is None:
            return Verdict(False, _WHY, _REFUSED_S)
        policy = self._egress.policy(sandbox)
        if policy.mode is not NetworkMode.ALLOWLIST or policy.on_block is not OnBlock.ASK:
            return _Then.RULE  # it was changed, and the gateway has not heard of it
        place = _place(wanted)
        if judge_connection([parse(rule.text) for rule in policy.rules], *place).whole.allowed:
            return _Then.RULE
        latest = tx.approvals.latest(sandbox.id, Kind.EGRESS, _what(wanted))
        if latest is None or (latest.is_pending and wanted.attempts):
            return None
        if latest.is_pending:
            return _Then.WAIT
        holds_s = approvals.holds_for_s(latest, self._clock.wall())
        return Verdict(latest.state.is_allowed, _said(latest), holds_s) if holds_s else None

    def _ask(self, tx: Transaction, wanted: Wanted) -> _Outcome:
        known = self._known(tx, wanted)
        if known is not None:
            return known
        sandbox = tx.sandboxes.get(ANY_TEAM, wanted.sandbox)
        assert sandbox is not None, "it is known, or its refusal is"
        what = _what(wanted)
        question = Question(
            Kind.EGRESS,
            what,
            title=what,
            why=_WHY,
            asked_by=sandbox.id,
            detail={"host": wanted.host, "port": wanted.port},
            timeout_s=self._timeout_s,
            times=wanted.attempts,
            task_id=task_of(tx, sandbox),
        )
        self._approvals.ask(tx, sandbox, question)
        return _Then.WAIT

    def effect(self, tx: Transaction, principal: Principal, approval: Approval) -> Approval:
        """The rule that an answer makes, where it is to hold for longer."""
        if approval.state is State.ALLOWED_TASK and approval.task_id:
            return self._grant(tx, principal, approval)
        if approval.state is State.ALLOWED_TASK:
            return self._allow(tx, principal, approval, Level.SANDBOX)
        if approval.state is State.ALLOWED_ALWAYS:
            assert approval.level is not None, "an answer says where"
            return self._allow(tx, principal, approval, approval.level)
        return approval

    def _grant(self, tx: Transaction, principal: Principal, approval: Approval) -> Approval:
        """For its task. It takes what a rule of the sandbox takes."""
        check_goes_on(tx, approval)
        principal.require(Scope.SANDBOXES_WRITE)
        rule, sandbox = parse(approval.what).text, _sandbox(tx, principal, approval)
        check_rules(principal, [rule])
        if len(self._egress.policy(sandbox).rules) >= MOST_RULES:
            raise InvalidRequest(
                f"sandbox {sandbox.name} has {MOST_RULES} rules, which is the most",
                remediation="allow a whole domain with `*.example.org` instead of its hosts",
            )
        self._granted.add(tx, principal, sandbox, task_id=approval.task_id, rule=rule)
        return replace(approval, rule=rule)

    def _allow(
        self, tx: Transaction, principal: Principal, approval: Approval, level: Level
    ) -> Approval:
        sandbox = _sandbox(tx, principal, approval)
        if level is Level.TEAM:
            raise InvalidRequest(
                "a team has no rules about hosts of its own",
                remediation="answer with the level sandbox, app, template or preset",
            )
        rule = parse(approval.what).text
        self._egress.allow_in(tx, principal, sandbox, holder=Holder(level), rule=rule)
        return replace(approval, rule=rule)

    async def put_in_force(self, approval: Approval) -> None:
        """What an answer has put into a policy."""
        if not approval.rule:
            return
        self._changes.forget(approval.sandbox_id)
        if approval.state is State.ALLOWED_ALWAYS:
            await self._egress.apply()
            return
        await self._granted.load()
        sandbox = await self._changes.find(ANY_TEAM, approval.sandbox_id)
        async with self._changes.alone(sandbox.id):
            await self._egress.apply(sandbox)


def _sandbox(tx: Transaction, principal: Principal, approval: Approval) -> SandboxRecord:
    sandbox = tx.sandboxes.get(principal.team_id, approval.sandbox_id)
    if sandbox is None:
        raise InvalidRequest(f"sandbox {approval.sandbox_name} is not there any more")
    return sandbox


def _what(wanted: Wanted) -> str:
    return rule_for(wanted.host, wanted.port)


def _place(wanted: Wanted) -> tuple[str, str, int]:
    name = normal(wanted.host)
    return name, "" if name else wanted.host, wanted.port


def _said(approval: Approval) -> str:
    """Inside the sandbox nobody is named."""
    if approval.state.is_allowed:
        return f"approval {approval.id}"
    if approval.state is State.EXPIRED:
        return f"{_WHY}, and nobody answered in time (approval {approval.id})"
    return f"somebody has denied it (approval {approval.id})"
