"""What people have allowed for a task: it is in force while the task goes on, and no longer."""

import asyncio
from collections.abc import Mapping

from paddock.domain.approval import Approval
from paddock.domain.audit import AuditEntry
from paddock.domain.egress import SourcedRule
from paddock.domain.errors import Conflict
from paddock.domain.event import Event, EventKind
from paddock.domain.records import SandboxRecord, app_in
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Store, Transaction

_PREFIX = "egress-granted."
_ACTOR = "paddock/approvals"


class Granted:
    """Rules by task, kept under its id: whoever dies meanwhile, they are found, and so is whether
    their task is over."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._kept: Mapping[str, tuple[str, ...]] = {}
        self._turn = asyncio.Lock()

    def rules(self, sandbox: SandboxRecord) -> tuple[SourcedRule, ...]:
        """Those of the task that it is at, as far as they were taken up."""
        found = self._kept.get(_key(sandbox.team_id, sandbox.task), ()) if sandbox.task else ()
        return tuple(SourcedRule(rule, f"task {sandbox.task}") for rule in found)

    def add(
        self,
        tx: Transaction,
        principal: Principal,
        sandbox: SandboxRecord,
        *,
        task_id: str,
        rule: str,
    ) -> None:
        """`load` it afterwards."""
        key = _key(sandbox.team_id, task_id)
        before = _read(tx.values.get(_PREFIX + key))
        after = tuple(dict.fromkeys((*before, rule)))
        tx.values.put(_PREFIX + key, list(after))
        self._tell(tx, principal.actor, key, (before, after))

    def take_away(self, tx: Transaction, principal: Principal, sandbox: SandboxRecord) -> None:
        """Whatever was granted to the task that it is at, here or by another process; `load` it
        afterwards."""
        if sandbox.task:
            self._remove(tx, principal.actor, _key(sandbox.team_id, sandbox.task))

    async def end(self) -> bool:
        """What was granted to tasks that are over is not kept; whether there was any."""
        if not self._kept:
            return False
        known = tuple(self._kept)
        over = await self._store.read(lambda tx: [key for key in known if _is_over(tx, key)])
        if not over:
            return False

        def write(tx: Transaction) -> None:
            for key in over:
                self._remove(tx, _ACTOR, key)

        await self._store.write(write)
        return True

    async def load(self) -> bool:
        """Take up what is kept; whether it is anything else than before."""
        async with self._turn:  # what was read before is never taken for what was read later
            before = self._kept
            kept = await self._store.read(lambda tx: tx.values.all(_PREFIX))
            self._kept = {key.removeprefix(_PREFIX): _read(each) for key, each in kept.items()}
            return self._kept != before

    def _remove(self, tx: Transaction, actor: str, key: str) -> None:
        before = _read(tx.values.get(_PREFIX + key))
        if before:
            tx.values.remove(_PREFIX + key)
            self._tell(tx, actor, key, (before, ()))

    def _tell(
        self,
        tx: Transaction,
        actor: str,
        key: str,
        rules: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> None:
        """Under the sandbox, as all about its network; under the task where that is not known."""
        team, _, task_id = key.partition("/")
        task = tx.tasks.get(team, task_id)
        sandbox = tx.sandboxes.get(team, task.sandbox_id) if task and task.sandbox_id else None
        before, after = ({"rules": list(each)} for each in rules)
        detail: dict[str, object] = {"of": "task", "task": task_id, **after, "before": before}
        if sandbox is not None:
            detail |= {"name": sandbox.name, **app_in(sandbox)}
        subject = sandbox.id if sandbox is not None else task_id
        now, kind = self._clock.wall(), EventKind.EGRESS_CHANGED
        tx.events.append([Event(team, kind, subject, now, detail, actor)])
        tx.audit.append([AuditEntry(team, actor, kind, subject, now, detail)])


def task_of(tx: Transaction, sandbox: SandboxRecord) -> str:
    """The task that a sandbox is at; empty where there is none, or it is over."""
    if not sandbox.task or _is_over(tx, _key(sandbox.team_id, sandbox.task)):
        return ""
    return sandbox.task


def check_goes_on(tx: Transaction, approval: Approval) -> None:
    """Something is to be allowed for a task."""
    if approval.task_id and _is_over(tx, _key(ANY_TEAM, approval.task_id)):
        raise Conflict(
            f"task {approval.task_id}, which has asked for approval {approval.id}, is over",
            remediation="answer allowed_once, allowed_always or denied",
        )


def _key(team_id: str, task_id: str) -> str:
    return f"{team_id}/{task_id}"


def _is_over(tx: Transaction, key: str) -> bool:
    team, _, task_id = key.partition("/")
    task = tx.tasks.get(team, task_id)
    return task is None or task.state.is_final


def _read(kept: object) -> tuple[str, ...]:
    return tuple(str(rule) for rule in kept) if isinstance(kept, list) else ()
