"""Why a task is stuck: what runs in its sandbox, what it waits for, what it was refused."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from paddock.domain.approval import Approval, State
from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Conflict, NotFound, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.examination import (
    LONGEST_LINE,
    MOST_LINES,
    SCRIPT,
    Examined,
    Process,
    read_inside,
)
from paddock.domain.hiding import without_values
from paddock.domain.task import TaskRecord
from paddock.domain.team import Principal, Scope
from paddock.ports.approvals import ApprovalFilter
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Store, Transaction
from paddock.services.task_events import note
from paddock.services.task_workspace import Workspaces

_LOOK_S = 10.0
_LOOKED_AT = 200
_MOST_OUTPUT = 256 << 10
_SAID = ("text", "command", "name", "path", "detail", "why")
Values = Callable[[TaskRecord], Awaitable[Collection[str]]]
"""What must not be told, of all that may be in a task's sandbox."""


class TaskDiagnosis:
    """It changes nothing, wakes nothing, and takes no longer than a few seconds."""

    def __init__(self, store: Store, clock: Clock, workspaces: Workspaces, values: Values) -> None:
        self._store = store
        self._clock = clock
        self._workspaces = workspaces
        self._values = values

    async def ask(self, principal: Principal, task_id: str) -> Examined:
        """Because somebody wants to know; told as an event like any other."""
        principal.require(Scope.TASKS_WRITE)
        task = await self._store.read(lambda tx: tx.tasks.get(principal.team_id, task_id))
        if task is None:
            raise NotFound(
                f"there is no task {task_id[:80]}",
                remediation="`paddock task ls` shows those there are",
            )
        if not task.sandbox_id:
            raise Conflict(
                f"task {task_id[:80]} has no sandbox that could be looked into",
                remediation="`paddock task show` says how far it is",
            )
        found = await self.examine(task, f"{principal.actor} asked")
        now = self._clock.wall()
        entry = AuditEntry(task.team_id, principal.actor, "task.diagnose", task.id, now)

        def write(tx: Transaction) -> None:
            tx.events.append([note(task, EventKind.TASK_DIAGNOSIS, now, found.data)])
            tx.audit.append([entry])

        await self._store.write(write)
        return found

    async def examine(self, task: TaskRecord, why: str) -> Examined:
        """Whatever cannot be found out is named as missing."""
        missing: list[str] = []
        inside: dict[str, Any] = {}
        try:
            inside = read_inside(await self._inside(task))
        except (PaddockError, TimeoutError) as error:
            said = error.message if isinstance(error, PaddockError) else "it did not answer"
            missing.append(f"what runs in its sandbox: {said}")
        outside = await self._store.read(lambda tx: _outside(tx, task))
        values = await self._values(task)
        found = Examined(at=self._clock.wall(), why=why, missing=tuple(missing))
        return _hidden(replace(found, **inside, **outside), values)

    async def _inside(self, task: TaskRecord) -> str:
        async with self._workspaces.enter(task, "") as entered:
            command = ("/bin/sh", "-c", SCRIPT, "sh", task.directory or "/")
            ran = await entered.guest.exec(command, timeout=_LOOK_S, max_output=_MOST_OUTPUT)
        return ran.stdout.decode("utf-8", "replace")


def _outside(tx: Transaction, task: TaskRecord) -> dict[str, Any]:
    """What is on record here."""
    last = tx.events.last_seq() + 1
    told = tx.events.before(last, _LOOKED_AT, subject=task.id)
    around = tx.events.before(last, _LOOKED_AT, subject=task.sandbox_id) if task.sandbox_id else ()
    pending = ApprovalFilter(states=frozenset({State.PENDING}))
    open_questions = tx.approvals.list(task.team_id, pending, Page(_LOOKED_AT))
    asked = [each for each in open_questions if _concerns(each, task)]
    lines = [line for event in told if event.kind.startswith("agent.") if (line := _line(event))]
    return {
        "lines": tuple(lines[-MOST_LINES:]),
        "refused": _refusals(around),
        "questions": tuple(each.title[:LONGEST_LINE] for each in asked[:MOST_LINES]),
    }


def _concerns(approval: Approval, task: TaskRecord) -> bool:
    return approval.task_id == task.id or bool(
        task.sandbox_id and approval.sandbox_id == task.sandbox_id
    )


def _line(event: Event) -> str:
    words = next((str(event.data[name]) for name in _SAID if event.data.get(name)), "")
    return f"{event.kind.removeprefix('agent.')}: {' '.join(words.split())}"[:LONGEST_LINE]


def _refusals(events: Sequence[Event]) -> tuple[str, ...]:
    refused: dict[str, int] = {}
    for event in events:
        if event.kind == EventKind.EGRESS_DENIED:
            port = f":{event.data['port']}" if event.data.get("port") else ""
            place = f"{event.data.get('host', '?')}{port}"
            refused[place] = refused.get(place, 0) + int(event.data.get("connections") or 1)
    worst = sorted(refused.items(), key=lambda each: each[1], reverse=True)[:MOST_LINES]
    return tuple(f"{place} ({count}×)" for place, count in worst)


def _hidden(found: Examined, values: Collection[str]) -> Examined:
    def clean(process: Process) -> Process:
        return replace(process, command=without_values(process.command, values))

    return replace(
        found,
        processes=tuple(clean(each) for each in found.processes),
        lines=tuple(without_values(each, values) for each in found.lines),
        missing=tuple(without_values(each, values) for each in found.missing),
    )
