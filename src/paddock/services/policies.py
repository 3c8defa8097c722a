"""Which commands may be run: the policies of a team, of a template and of a sandbox."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from paddock.domain.audit import AuditEntry
from paddock.domain.command_line import Read
from paddock.domain.command_policy import (
    ALLOWED,
    CommandPolicy,
    Decision,
    Verdict,
    exactly,
    judge,
    policy_of,
    with_exception,
)
from paddock.domain.errors import (
    ApprovalRequired,
    Forbidden,
    InvalidRequest,
    NotFound,
    PaddockError,
)
from paddock.domain.event import Event, EventKind
from paddock.domain.records import SandboxRecord, alive, app_in
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.alongside import alongside, every
from paddock.services.changes import Changes

_log = logging.getLogger(__name__)
_PREFIX = "policy."
_POLL_S = 5.0
_LONG = 1000


class Holder(StrEnum):
    """Whose policy it is. All that apply to a sandbox have to agree: none weakens another."""

    TEAM = "team"
    TEMPLATE = "template"
    SANDBOX = "sandbox"


_WHO_MAY_CHANGE = {
    Holder.TEAM: "an admin of the team can change it: `paddock policy set FILE`",
    Holder.TEMPLATE: "an admin of the team that runs the installation can change it: "
    "`paddock policy set FILE --template NAME`",
    Holder.SANDBOX: "an admin of the team can change it: `paddock policy set FILE --sandbox NAME`",
}


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision, and whose policy made it; nobody's where everything is allowed."""

    decision: Decision
    holder: Holder | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A command that waits for an approval."""

    principal: Principal
    sandbox: SandboxRecord
    argv: tuple[str, ...]
    ruling: Ruling
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Exempted:
    """A command that a policy has asked about, and shall not any more."""

    name: str
    """Of the rule."""
    holder: Holder
    to: str
    """The rule that asked; empty for the policy's default."""
    argv: Sequence[str]
    env: Sequence[str] = ()
    """Names of the variables that it was started with."""


Approve = Callable[[Asked], Awaitable[None]]
"""Returns once somebody has approved; raises ApprovalRequired otherwise."""


async def nobody_approves(asked: Asked) -> None:
    raise ApprovalRequired(said(asked.ruling), remediation=remedy(asked.ruling))


class Policies:
    """All that apply are judged before a command is started. Where there are none, nothing is."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        changes: Changes,
        read: Read,
    ) -> None:
        self._store = store
        self._clock = clock
        self._changes = changes
        self._read = read
        self.approve: Approve = nobody_approves
        """Who is asked where a policy says so."""
        self._kept: dict[str, CommandPolicy] = {}
        """Of teams and templates; a sandbox has its own in its record."""
        self._turn = asyncio.Lock()

    async def check(
        self,
        principal: Principal,
        sandbox: SandboxRecord,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: str = "",
        user: str = "",
    ) -> None:
        """Forbidden or ApprovalRequired unless every policy that applies allows it. It takes as
        long as somebody takes to approve."""
        if not self._kept and sandbox.command_policy is None:
            return
        ruling = await self._ruled(sandbox, argv, env)
        if ruling.decision.verdict is Verdict.ALLOW:
            return
        if ruling.decision.verdict is Verdict.ASK:
            asked = Asked(principal, sandbox, tuple(argv), ruling, dict(env), cwd, user)
            try:
                await self.approve(asked)
            except ApprovalRequired:
                await self._note(principal, sandbox, ruling)
                raise
            return
        await self._note(principal, sandbox, ruling)
        raise Forbidden(said(ruling), remediation=remedy(ruling))

    def limits(self, sandbox: SandboxRecord) -> bool:
        """Whether any policy applies to it."""
        return bool(self._applying(sandbox))

    def rule(self, sandbox: SandboxRecord, argv: Sequence[str], env: Mapping[str, str]) -> Ruling:
        """The strongest verdict of the policies that apply."""
        found = Ruling(ALLOWED)
        for holder, policy in self._applying(sandbox):
            decision = judge(policy, argv, self._read, env)
            if decision.verdict.outweighs(found.decision.verdict):
                found = Ruling(decision, holder)
        return found

    async def ask(
        self,
        principal: Principal,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
    ) -> Ruling:
        """What would become of a command, without running it."""
        principal.require(Scope.SANDBOXES_READ)
        return await self._ruled(await self._changes.find(principal.team_id, name), argv, env)

    async def _ruled(
        self, sandbox: SandboxRecord, argv: Sequence[str], env: Mapping[str, str]
    ) -> Ruling:
        """A long script takes a while to read, and others do not wait for it."""
        if sum(map(len, argv)) < _LONG:
            return self.rule(sandbox, argv, env)
        return await asyncio.to_thread(self.rule, sandbox, argv, env)

    def _applying(self, sandbox: SandboxRecord) -> list[tuple[Holder, CommandPolicy]]:
        found = [
            (Holder.TEAM, self._kept.get(_key(Holder.TEAM, sandbox.team_id))),
            (Holder.TEMPLATE, self._kept.get(_key(Holder.TEMPLATE, sandbox.template))),
            (Holder.SANDBOX, sandbox.command_policy),
        ]
        return [(holder, policy) for holder, policy in found if policy is not None]

    async def get(self, principal: Principal, holder: Holder, name: str) -> CommandPolicy:
        """NotFound when there is none, and everything is allowed."""
        if holder is Holder.SANDBOX:
            principal.require(Scope.SANDBOXES_READ)
            found = (await self._changes.find(principal.team_id, name)).command_policy
        else:
            reads = Scope.TEMPLATES_READ if holder is Holder.TEMPLATE else Scope.SANDBOXES_READ
            principal.require(reads)
            found = self._kept.get(_key(holder, name))
        if found is None:
            raise NotFound(
                f"this {holder} has no policy of its own: it forbids no command",
                remediation="`paddock policy set` makes one",
            )
        return found

    async def put(
        self, principal: Principal, holder: Holder, name: str, policy: CommandPolicy | None
    ) -> None:
        """In force for every command that is started from now on; None takes it away."""
        _check_may_change(principal, holder)
        if holder is Holder.SANDBOX:
            await self._put_on_sandbox(principal, name, policy)
            return
        await self._store.write(lambda tx: self._write(tx, principal, (holder, name), policy))
        await self.load()

    def _write(
        self,
        tx: Transaction,
        principal: Principal,
        whose: tuple[Holder, str],
        policy: CommandPolicy | None,
    ) -> None:
        (holder, name), now = whose, self._clock.wall()
        if policy is None:
            tx.values.remove(_PREFIX + _key(holder, name))
        else:
            tx.values.put(_PREFIX + _key(holder, name), asdict(policy))
        detail = {"of": holder, **_detail(policy)}
        team, actor, kind = principal.team_id, principal.actor, EventKind.POLICY_CHANGED
        tx.events.append([Event(team, kind, name, now, detail, actor)])
        tx.audit.append([AuditEntry(team, actor, kind, name, now, detail)])

    async def _put_on_sandbox(
        self, principal: Principal, name: str, policy: CommandPolicy | None
    ) -> None:
        sandbox = await self._changes.living(principal.team_id, name)
        await self._changes.apply(
            sandbox.id,
            lambda current: replace(alive(current), command_policy=policy),
            principal,
            action=EventKind.POLICY_CHANGED,
            detail={"of": Holder.SANDBOX, **_detail(policy)},
        )

    def except_in(
        self, tx: Transaction, principal: Principal, sandbox: SandboxRecord, wanted: Exempted
    ) -> None:
        """From now on this command is allowed, word for word, by the policy that asked about it;
        `load` it afterwards. InvalidRequest where a rule cannot say so."""
        _check_may_change(principal, wanted.holder)
        names = {Holder.TEAM: sandbox.team_id, Holder.TEMPLATE: sandbox.template}
        name = names.get(wanted.holder, sandbox.id)
        kept = tx.values.get(_PREFIX + _key(wanted.holder, name))
        before = sandbox.command_policy if wanted.holder is Holder.SANDBOX else None
        before = policy_of(kept) if kept is not None else before
        if before is None:
            raise InvalidRequest(f"the {wanted.holder} has no policy any more: nothing is asked")
        policy = self._excepting(before, wanted)
        if wanted.holder is not Holder.SANDBOX:
            self._write(tx, principal, (wanted.holder, name), policy)
            return
        self._changes.write(
            tx,
            sandbox.id,
            lambda current: replace(alive(current), command_policy=policy),
            principal,
            action=EventKind.POLICY_CHANGED,
            detail={"of": Holder.SANDBOX, **_detail(policy)},
        )

    def _excepting(self, policy: CommandPolicy, wanted: Exempted) -> CommandPolicy:
        """It has to hold: a rule about the words of a command says nothing about what a script in
        it runs, and none allows anything while the search path is another."""
        made = with_exception(policy, exactly(wanted.name, wanted.argv), wanted.to)
        decision = judge(made, wanted.argv, self._read, dict.fromkeys(wanted.env, ""))
        if decision.verdict is Verdict.ALLOW:
            return made
        raise InvalidRequest(
            f"no rule for exactly this command would allow it: of what it runs, "
            f"{decision.program[:80]!r} would still be asked about ({decision.why})",
            remediation="answer allowed_once or allowed_task, and change the policy by hand: "
            "`paddock policy set`",
        )

    async def load(self) -> None:
        """Take up what is kept. What cannot be read forbids everything, rather than nothing."""
        async with self._turn:  # what was read before is never taken for what was read later
            self._kept = _read(await self._store.read(lambda tx: tx.values.all(_PREFIX)))

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """What is kept is in force, and what another process changes while this is open."""
        await self.load()
        if not self._store.is_shared:
            yield
            return
        looking = every(_POLL_S, self.load, clock=self._clock, failed="policies could not be read")
        async with alongside(looking, "policies of other processes"):
            yield

    async def _note(self, principal: Principal, sandbox: SandboxRecord, ruling: Ruling) -> None:
        """Of the command only the program: arguments may hold what nobody should read later."""
        decision, now = ruling.decision, self._clock.wall()
        data = {
            "name": sandbox.name,
            "verdict": decision.verdict.value,
            "program": decision.program[:200],
            "rule": decision.rule,
            "of": ruling.holder,
        }
        team, actor, kind = principal.team_id, principal.actor, EventKind.COMMAND_DENIED

        def write(tx: Transaction) -> None:
            told = {**data, **app_in(sandbox)}
            tx.events.append([Event(team, kind, sandbox.id, now, told, actor)])
            tx.audit.append([AuditEntry(team, actor, kind, sandbox.id, now, data)])

        await self._store.write(write)


def _read(kept: Mapping[str, object]) -> dict[str, CommandPolicy]:
    found = {}
    for name, value in kept.items():
        try:
            found[name.removeprefix(_PREFIX)] = policy_of(value)
        except PaddockError as error:
            _log.error("policy not understood", extra={"of": name, "error": error.message})
            found[name.removeprefix(_PREFIX)] = CommandPolicy(default=Verdict.DENY)
    return found


def _check_may_change(principal: Principal, holder: Holder) -> None:
    principal.require(Scope.POLICIES_WRITE)
    if holder is Holder.TEMPLATE and not principal.operator:
        raise Forbidden(
            "templates are the whole installation's, so only its operators set policies on them",
            remediation="set one on your team or on a sandbox",
        )


def _detail(policy: CommandPolicy | None) -> dict[str, object]:
    if policy is None:
        return {"removed": True}
    return {"rules": len(policy.rules), "default": policy.default, "unknown": policy.unknown}


def _key(holder: Holder, name: str) -> str:
    return f"{holder}.{name}"


def said(ruling: Ruling) -> str:
    decision = ruling.decision
    by = f"rule {decision.rule!r} of the {ruling.holder}'s policy"
    by = by if decision.rule else f"the {ruling.holder}'s policy"
    wants = "needs an approval by" if decision.verdict is Verdict.ASK else "is denied by"
    return f"the command {decision.program[:80]!r} {wants} {by}: {decision.why}"


def remedy(ruling: Ruling) -> str:
    assert ruling.holder is not None
    return f"use another command; {_WHO_MAY_CHANGE[ruling.holder]}"
