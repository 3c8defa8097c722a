"""Sandboxes that were set aside: stood still, with what is known of them, until somebody who may
has looked and they pass a smoke test."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from paddock.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.examination import Examined
from paddock.domain.quarantine import ACTOR, Quarantine
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord, alive
from paddock.domain.sandbox import SandboxState
from paddock.domain.task import TaskRecord, TaskState, moved
from paddock.domain.team import Principal, Role, Scope
from paddock.ports.clock import Clock
from paddock.ports.provider import PauseKind
from paddock.ports.store import ANY_TEAM, Page, Store, Transaction
from paddock.ports.tasks import TaskFilter
from paddock.services.changes import Changes
from paddock.services.guests import Guests
from paddock.services.providers import Providers
from paddock.services.sandboxes import Sandboxes
from paddock.services.snapshots import Snapshots
from paddock.services.system import system
from paddock.services.taking import Capture
from paddock.services.task_events import state_event

_log = logging.getLogger(__name__)
_NAME = "quarantine."
_LOOK_S = 10.0
_LONGEST_WHY = 500
_EVENTS = 200
_TASKS = 50
_AT_WORK = frozenset({TaskState.RUNNING})
RULE = "quarantine"
"""What makes a task wait whose sandbox was set aside."""
_SMOKE = 'f=$(mktemp) && echo paddock-smoke >"$f" && cat "$f" && rm -f -- "$f"'
_SMOKE_SAYS = b"paddock-smoke"
Examine = Callable[[TaskRecord, str], Awaitable[Examined]]


@dataclass(frozen=True, slots=True)
class Case:
    """A sandbox that was set aside, and the evidence."""

    team_id: str
    sandbox_id: str
    name: str
    by: str
    at: float
    why: str
    before: str
    """The state that it was in."""
    tasks: tuple[str, ...] = ()
    """That were at work in it, and wait now."""
    diagnosis: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Mapping[str, Any], ...] = ()
    egress: tuple[Mapping[str, Any], ...] = ()
    snapshot: str = ""
    missing: tuple[str, ...] = ()
    """What could not be kept, and why."""


class Quarantines:
    """Set aside, shown, and opened again."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        changes: Changes,
        sandboxes: Sandboxes,
        snapshots: Snapshots,
        guests: Guests,
        providers: Providers,
        examine: Examine,
    ) -> None:
        self._store = store
        self._clock = clock
        self._changes = changes
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._guests = guests
        self._providers = providers
        self._examine = examine

    async def list(self, principal: Principal) -> Sequence[Case]:
        """Newest first."""
        principal.require(Scope.SANDBOXES_READ)
        return await self.cases(principal.team_id)

    async def cases(self, team_id: str) -> Sequence[Case]:
        """Of every team where none is named; without those whose sandbox is gone."""
        begins = f"{_NAME}{team_id}." if team_id else _NAME

        def read(tx: Transaction) -> list[Case]:
            cases = [msgspec.convert(each, Case) for each in tx.values.all(begins).values()]
            return [case for case in cases if _is_there(tx, case)]

        found = await self._store.read(read)
        return sorted(found, key=lambda case: case.at, reverse=True)

    async def get(self, principal: Principal, name: str) -> Case:
        principal.require(Scope.SANDBOXES_READ)
        sandbox = await self._changes.find(principal.team_id, name)
        found = await self._store.read(lambda tx: tx.values.get(_key(sandbox)))
        if found is None:
            raise NotFound(
                f"sandbox {sandbox.name} was not set aside",
                remediation="`paddock quarantine ls` shows those that were",
            )
        return msgspec.convert(found, Case)

    async def set(self, principal: Principal, name: str, why: str) -> Case:
        """From then on nobody but an admin goes in. It stands still, and so does a task that works
        in it. The evidence is kept; what cannot be had of it is named, and hinders nothing."""
        principal.require(Scope.SANDBOXES_WRITE)
        if not (why := why.strip()) or len(why) > _LONGEST_WHY:
            raise InvalidRequest(
                "a sandbox is set aside for a reason",
                remediation=f"say why, in at most {_LONGEST_WHY} characters",
            )
        sandbox = alive(await self._changes.find(principal.team_id, name))
        if sandbox.quarantine is not None:
            return await self.get(principal, sandbox.id)
        tasks = await self._tasks_in(sandbox)
        case = await self._looked_into(principal, sandbox, tasks, why)
        await self._hold_agents(sandbox, tasks)
        await self._mark(principal, sandbox, case)
        return await self._frozen(sandbox, case)

    async def _looked_into(
        self, principal: Principal, sandbox: SandboxRecord, tasks: Sequence[TaskRecord], why: str
    ) -> Case:
        found: Mapping[str, Any] = {}
        if tasks and sandbox.state is SandboxState.RUNNING:
            found = (await self._examine(tasks[0], why)).data

        def read(tx: Transaction) -> list[Event]:
            last = tx.events.last_seq() + 1
            subjects = (sandbox.id, *(task.id for task in tasks))
            return [e for each in subjects for e in tx.events.before(last, _EVENTS, subject=each)]

        events = await self._store.read(read)
        shown = [_shown(each) for each in sorted(events, key=lambda each: each.seq)]
        return Case(
            team_id=sandbox.team_id,
            sandbox_id=sandbox.id,
            name=sandbox.name,
            by=principal.actor,
            at=self._clock.wall(),
            why=why,
            before=sandbox.state,
            tasks=tuple(task.id for task in tasks),
            diagnosis=found,
            events=tuple(shown[-_EVENTS:]),
            egress=tuple(e for e in shown if e["kind"].startswith("egress."))[-_EVENTS:],
        )

    async def _tasks_in(self, sandbox: SandboxRecord) -> Sequence[TaskRecord]:
        wanted = TaskFilter(states=_AT_WORK, sandbox_id=sandbox.id)
        return await self._store.read(
            lambda tx: tx.tasks.list(sandbox.team_id, wanted, Page(_TASKS))
        )

    async def _hold_agents(self, sandbox: SandboxRecord, tasks: Sequence[TaskRecord]) -> None:
        """They do not go on with the sandbox, when that is opened again."""
        for task in tasks:
            try:
                guest = await self._guests.of(sandbox)
                await guest.runs.signal(task.conversation.run_key(task.id), "SIGSTOP")
            except PaddockError as error:
                details = {"id": task.id, "error": error.message}
                _log.warning("agent not held still", extra=details)

    async def _mark(self, principal: Principal, sandbox: SandboxRecord, case: Case) -> None:
        """The door is closed, and the tasks wait; before anything that may take long."""
        mark = Quarantine(case.by, case.at, case.why)
        detail = {
            "before": {"state": sandbox.state, "quarantined": False},
            "after": {"quarantined": True, "tasks": list(case.tasks)},
            "why": case.why,
        }

        def write(tx: Transaction) -> None:
            self._changes.write(
                tx,
                sandbox.id,
                lambda current: replace(alive(current), quarantine=mark, changed_at=case.at),
                principal,
                action="sandbox.quarantine",
                detail=detail,
            )
            data = {"name": sandbox.name, "why": case.why, "tasks": list(case.tasks)}
            tx.events.append([_event(sandbox, EventKind.SANDBOX_QUARANTINED, case, data)])
            for task_id in case.tasks:
                _hold_task(tx, task_id, case)
            tx.values.put(_key(sandbox), asdict(case))

        try:
            await self._store.write(write)
        finally:
            self._changes.forget(sandbox.id)

    async def _frozen(self, sandbox: SandboxRecord, case: Case) -> Case:
        """Stood still where its provider can, or stopped; and its disk kept."""
        us, missing = _us(sandbox.team_id), list[str]()
        able = self._providers.get(sandbox.provider).capabilities
        if sandbox.state is SandboxState.RUNNING:
            freeze = self._sandboxes.pause if able.pause is not PauseKind.NO else None
            stop = freeze or self._sandboxes.stop
            try:
                await stop(us, sandbox.id, Reason.EVICTED, f"set aside: {case.why}")
            except PaddockError as error:
                missing.append(f"that it stands still: {error.message}")
        snapshot = ""
        try:
            if not able.snapshot:
                raise Conflict(f"provider {sandbox.provider} takes none")
            wish = Capture(name=f"evidence-{sandbox.id[-8:]}-{int(case.at)}", everything=True)
            snapshot = (await self._snapshots.take(us, sandbox.id, wish)).id
        except PaddockError as error:
            missing.append(f"a snapshot: {error.message}")
        whole = replace(case, snapshot=snapshot, missing=tuple(missing))

        def write(tx: Transaction) -> None:
            if tx.values.get(_key(sandbox)) is not None:  # or it was forgotten meanwhile
                tx.values.put(_key(sandbox), asdict(whole))

        await self._store.write(write)
        return whole

    async def clear(self, principal: Principal, name: str) -> SandboxRecord:
        """Open again: it runs, passes a smoke test, and whoever may otherwise goes in. When it does
        not pass, Conflict, and it stands still. Its task goes on when somebody resumes it."""
        principal.require(Scope.SANDBOXES_WRITE)
        if principal.role is not Role.ADMIN:
            raise Forbidden(
                "only an admin opens what was set aside", remediation="ask an admin of the team"
            )
        case = await self.get(principal, name)
        sandbox = await self._changes.living(principal.team_id, case.sandbox_id)
        await self._try_out(sandbox, case)

        def write(tx: Transaction) -> SandboxRecord:
            now = self._clock.wall()
            opened = self._changes.write(
                tx,
                sandbox.id,
                lambda current: replace(current, quarantine=None, changed_at=now),
                principal,
                action="sandbox.clear",
                detail={
                    "before": {"quarantined": True, "by": case.by, "why": case.why},
                    "after": {"quarantined": False, "smoke_test": "passed"},
                    "snapshot": case.snapshot,
                },
            )
            data = {"name": sandbox.name, "by": principal.actor, "snapshot": case.snapshot}
            kind = EventKind.SANDBOX_CLEARED
            tx.events.append([Event(case.team_id, kind, sandbox.id, now, data, principal.actor)])
            tx.values.remove(_key(sandbox))
            for task_id in case.tasks:
                if (task := tx.tasks.get(case.team_id, task_id)) is not None:
                    tx.tasks.replace(replace(task, oddness=(), forgiven_at=now))
            return opened

        try:
            return await self._store.write(write)
        finally:
            self._changes.forget(sandbox.id)

    async def _try_out(self, sandbox: SandboxRecord, case: Case) -> None:
        """The smoke test: it wakes, its guest answers, a command runs and its disk can be used."""
        us, why = _us(sandbox.team_id), ""
        try:
            async with asyncio.timeout(_LOOK_S * 6):
                if sandbox.state is SandboxState.PAUSED:
                    sandbox = await self._sandboxes.resume(us, sandbox.id)
                elif sandbox.state in (SandboxState.STOPPED, SandboxState.ARCHIVED):
                    sandbox = await self._sandboxes.start(us, sandbox.id)
                guest = await self._guests.of(sandbox)
                ran = await guest.exec(("/bin/sh", "-c", _SMOKE), timeout=_LOOK_S)
            if ran.exit_code != 0 or _SMOKE_SAYS not in ran.stdout:
                said = ran.stderr.decode("utf-8", "replace").strip()[-300:]
                why = f"a command ended with {ran.exit_code}: {said}"
        except PaddockError as error:
            why = error.message
        except TimeoutError:
            why = "it did not answer in time"
        if not why:
            return
        await self._frozen_again(us, sandbox, case)
        raise Conflict(
            f"sandbox {sandbox.name} did not pass the smoke test: {why}",
            remediation="look into it as an admin, restore a snapshot, or delete it with force",
        )

    async def _frozen_again(self, us: Principal, sandbox: SandboxRecord, case: Case) -> None:
        able = self._providers.get(sandbox.provider).capabilities
        freeze = self._sandboxes.pause if able.pause is not PauseKind.NO else self._sandboxes.stop
        try:
            await freeze(us, sandbox.id, Reason.EVICTED, f"set aside: {case.why}")
        except PaddockError as error:
            details = {"id": sandbox.id, "error": error.message}
            _log.warning("set aside, and not stood still", extra=details)

    async def hold(self, sandbox: SandboxRecord) -> str:
        """What would be lost with the sandbox, in words."""
        return f"it was set aside: {sandbox.quarantine.why}" if sandbox.quarantine else ""


def forget_case(tx: Transaction, sandbox: SandboxRecord) -> None:
    tx.values.remove(_key(sandbox))


def forget_cases(tx: Transaction) -> None:
    """Those whose sandbox is not even on record any more."""
    for name in tx.values.all(_NAME):
        if tx.sandboxes.get(ANY_TEAM, name.rpartition(".")[2]) is None:
            tx.values.remove(name)


def _is_there(tx: Transaction, case: Case) -> bool:
    sandbox = tx.sandboxes.get(case.team_id, case.sandbox_id)
    return sandbox is not None and not sandbox.is_gone


def _us(team_id: str) -> Principal:
    return system(team_id, ACTOR.partition("/")[2])


def _key(sandbox: SandboxRecord) -> str:
    return f"{_NAME}{sandbox.team_id}.{sandbox.id}"


def _event(sandbox: SandboxRecord, kind: EventKind, case: Case, data: Mapping[str, Any]) -> Event:
    return Event(sandbox.team_id, kind, sandbox.id, case.at, data, case.by)


def _shown(event: Event) -> dict[str, Any]:
    return {"seq": event.seq, "kind": event.kind, "at": event.at, "data": dict(event.data)}


def _hold_task(tx: Transaction, task_id: str, case: Case) -> None:
    """It waits, until somebody resumes it; whoever holds it finds that out."""
    task = tx.tasks.get(case.team_id, task_id)
    if task is None or task.state is not TaskState.RUNNING:
        return
    still = replace(
        moved(task, TaskState.WAITING, case.at, detail=f"its sandbox was set aside: {case.why}"),
        waits_for="",
        waits_rule=RULE,
        waiting_since=case.at,
        is_resumed=False,
    )
    tx.events.append([state_event(still, case.at, case.by)])
    tx.tasks.replace(still)
