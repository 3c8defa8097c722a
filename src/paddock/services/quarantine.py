"""Sandboxes that were set aside: stood still, with what is known of them, until somebody who may
has looked and they pass a smoke test."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

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
from paddock.ports.store import Page, Store, Transaction
from paddock.ports.tasks import TaskFilter
from paddock.services import quarantine_cases
from paddock.services.changes import Changes
from paddock.services.guests import Guests
from paddock.services.leftovers import Leftovers
from paddock.services.providers import Providers
from paddock.services.quarantine_cases import Case
from paddock.services.sandboxes import Sandboxes
from paddock.services.snapshots import Snapshots
from paddock.services.system import system
from paddock.services.taking import Capture
from paddock.services.task_events import state_event

_log = logging.getLogger(__name__)
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
        leftovers: Leftovers,
    ) -> None:
        self._store = store
        self._clock = clock
        self._changes = changes
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._guests = guests
        self._providers = providers
        self._examine = examine
        self._leftovers = leftovers

    async def list(self, principal: Principal) -> Sequence[Case]:
        """Newest first."""
        principal.require(Scope.SANDBOXES_READ)
        return await self.cases(principal.team_id)

    async def cases(self, team_id: str) -> Sequence[Case]:
        """Of every team where none is named; without those whose sandbox is gone."""
        found = await self._store.read(lambda tx: quarantine_cases.find_all(tx, team_id))
        return sorted(found, key=lambda case: case.at, reverse=True)

    async def get(self, principal: Principal, name: str) -> Case:
        principal.require(Scope.SANDBOXES_READ)
        sandbox = await self._changes.find(principal.team_id, name)
        found = await self._case(sandbox)
        if found is None:
            raise NotFound(
                f"sandbox {sandbox.name} was not set aside",
                remediation="`paddock quarantine ls` shows those that were",
            )
        return found

    async def _case(self, sandbox: SandboxRecord) -> Case | None:
        whose = (sandbox.team_id, sandbox.id)
        return await self._store.read(lambda tx: quarantine_cases.find(tx, *whose))

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
            return await self._finished(await self.get(principal, sandbox.id))
        tasks = await self._tasks_in(sandbox)
        case = await self._looked_into(principal, sandbox, tasks, why)
        await self._hold_agents(sandbox, tasks)
        return await self._finished(await self._mark(principal, sandbox, case))

    async def finish(self, sandbox: SandboxRecord) -> None:
        """What was begun when a process ended, or could not be done then, is done."""
        case = await self._case(sandbox)
        if case is not None and not case.is_still:
            await self._finished(case)

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

    async def _mark(self, principal: Principal, sandbox: SandboxRecord, case: Case) -> Case:
        """The door is closed, and the tasks wait; before anything that may take long. Where two do
        it at once, the first one's case stands."""
        mark = Quarantine(case.by, case.at, case.why)
        detail = {
            "before": {"state": sandbox.state, "quarantined": False},
            "after": {"quarantined": True, "tasks": list(case.tasks)},
            "why": case.why,
        }

        def write(tx: Transaction) -> Case:
            if (earlier := quarantine_cases.find(tx, case.team_id, case.sandbox_id)) is not None:
                return earlier
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
            quarantine_cases.put(tx, case)
            return case

        try:
            return await self._store.write(write)
        finally:
            self._changes.forget(sandbox.id)

    async def _finished(self, case: Case) -> Case:
        """Once, whoever is at it; for one that could not be made to stand still, again later."""
        async with self._changes.alone(quarantine_cases.key_of(case.team_id, case.sandbox_id)):
            async with self._changes.alone(case.sandbox_id):
                # Whoever was making or starting it is done: what it is now, it stays.
                self._changes.forget(case.sandbox_id)
                sandbox = await self._changes.find(case.team_id, case.sandbox_id)
            case = await self._case(sandbox) or case
            if case.is_still or sandbox.quarantine is None or sandbox.is_gone:
                return case
            if sandbox.state is SandboxState.CREATING:
                return case  # another process makes it
            return await self._kept(sandbox, await self._frozen(sandbox, case))

    async def _frozen(self, sandbox: SandboxRecord, case: Case) -> Case:
        """Stood still where its provider can, or stopped."""
        if sandbox.state is not SandboxState.RUNNING:
            return replace(case, is_still=True, missing=())
        able = self._providers.get(sandbox.provider).capabilities
        freeze = self._sandboxes.pause if able.pause is not PauseKind.NO else self._sandboxes.stop
        try:
            await freeze(_us(sandbox.team_id), sandbox.id, Reason.EVICTED, f"set aside: {case.why}")
        except PaddockError as error:
            details = {"id": sandbox.id, "error": error.message}
            _log.warning("set aside, and not stood still", extra=details)
            return replace(case, missing=(f"that it stands still: {error.message}",))
        return replace(case, is_still=True, missing=())

    async def _kept(self, sandbox: SandboxRecord, case: Case) -> Case:
        """With its disk, and written down."""
        if not case.snapshot:
            try:
                case = replace(case, snapshot=await self._evidence(sandbox, case))
            except PaddockError as error:
                case = replace(case, missing=(*case.missing, f"a snapshot: {error.message}"))
        await self._store.write(lambda tx: quarantine_cases.replace_known(tx, case))
        return case

    async def _evidence(self, sandbox: SandboxRecord, case: Case) -> str:
        if not self._providers.get(sandbox.provider).capabilities.snapshot:
            raise Conflict(f"provider {sandbox.provider} takes none")
        name = f"evidence-{sandbox.id[-8:]}-{int(case.at)}"
        earlier = await self._store.read(lambda tx: tx.snapshots.get(sandbox.team_id, name))
        if earlier is not None and earlier.ref and earlier.quarantine is not None:
            return earlier.id  # taken, and then the process ended
        wish = Capture(name=name, everything=True)
        return (await self._snapshots.take(_us(sandbox.team_id), sandbox.id, wish)).id

    async def clear(self, principal: Principal, name: str) -> SandboxRecord:
        """Open again: it runs, passes a smoke test, and whoever may otherwise goes in. When it does
        not pass, Conflict, and it stands still. Its task goes on when somebody resumes it."""
        principal.require(Scope.SANDBOXES_WRITE)
        if principal.role is not Role.ADMIN:
            raise Forbidden(
                "only an admin opens what was set aside", remediation="ask an admin of the team"
            )
        case = await self.get(principal, name)
        async with self._changes.alone(quarantine_cases.key_of(case.team_id, case.sandbox_id)):
            case = await self.get(principal, case.sandbox_id)
            sandbox = await self._changes.living(principal.team_id, case.sandbox_id)
            await self._try_out(sandbox, case)
            return await self._open(principal, sandbox, case)

    async def _open(
        self, principal: Principal, sandbox: SandboxRecord, case: Case
    ) -> SandboxRecord:
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
            quarantine_cases.remove(tx, case)
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
        woken = replace(case, is_still=False)
        await self._store.write(
            lambda tx: quarantine_cases.put(tx, woken)
        )  # should this process end
        try:
            async with asyncio.timeout(_LOOK_S * 6):
                if sandbox.state is SandboxState.PAUSED:
                    sandbox = await self._sandboxes.resume(us, sandbox.id)
                elif sandbox.state in (SandboxState.STOPPED, SandboxState.ARCHIVED):
                    sandbox = await self._sandboxes.start(us, sandbox.id)
                # Before anything runs in it: whose task was cancelled meanwhile goes on never more.
                await self._leftovers.end(sandbox)
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
        now = await self._changes.find(sandbox.team_id, sandbox.id)
        again = replace(await self._frozen(now, case), missing=case.missing)
        await self._store.write(lambda tx: quarantine_cases.put(tx, again))
        raise Conflict(
            f"sandbox {sandbox.name} did not pass the smoke test: {why}",
            remediation="look into it as an admin, restore a snapshot, or delete it with --force "
            "(`force` in the API)",
        )

    async def hold(self, sandbox: SandboxRecord) -> str:
        """What would be lost with the sandbox, in words."""
        return f"it was set aside: {sandbox.quarantine.why}" if sandbox.quarantine else ""


def _us(team_id: str) -> Principal:
    return system(team_id, ACTOR.partition("/")[2])


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
