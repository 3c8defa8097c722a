"""Tasks that are over go, one by one or by what they have in common, and in time by themselves.

With a task go its steps, its messages, what its agent wrote and what models counted for it. Its
events stay for as long as events do, and the audit log stays for good.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Conflict, InvalidRequest, NotFound, PaddockError
from paddock.domain.event import EventKind
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Store, Transaction
from paddock.ports.tasks import TaskFilter
from paddock.services.sandboxes import Sandboxes
from paddock.services.spending import forget_task
from paddock.services.task_events import note
from paddock.services.task_trees import Trees

_log = logging.getLogger(__name__)
_FEW = 20
_IN_ONE_SANDBOX = 200
OVER = frozenset(state for state in TaskState if state.is_final)


@dataclass(frozen=True, slots=True)
class Terms:
    """How much may go."""

    force: bool = False
    """Also what a task made, where that is nowhere but in its sandbox."""
    sandbox: bool = False
    """The sandbox too, if it was made for the task."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """A task that stays, and why."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Swept:
    """What went, or would."""

    tasks: tuple[str, ...] = ()
    sandboxes: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    next: str = ""
    """Where to go on, if that was not all."""

    def plus(self, more: "Swept") -> "Swept":
        return replace(
            self,
            tasks=self.tasks + more.tasks,
            sandboxes=self.sandboxes + more.sandboxes,
            kept=self.kept + more.kept,
        )


class TaskCleaning:
    """Nothing goes before what it made is safe, unless somebody says so."""

    def __init__(self, store: Store, clock: Clock, sandboxes: Sandboxes, trees: Trees) -> None:
        self._store = store
        self._clock = clock
        self._sandboxes = sandboxes
        self._trees = trees

    async def delete(self, principal: Principal, task_id: str, terms: Terms) -> Swept:
        """Conflict for one that is not over, and while what it made would be lost."""
        principal.require(Scope.TASKS_WRITE)
        task = await self._store.read(lambda tx: tx.tasks.get(principal.team_id, task_id))
        if task is None:
            raise NotFound(
                f"there is no task {task_id[:80]}",
                remediation="`paddock task ls` shows those there are",
            )
        swept = await self._one(principal, task, terms)
        await self._clear([task], swept, terms)
        return swept

    async def delete_all(
        self, principal: Principal, wanted: TaskFilter, page: Page, terms: Terms
    ) -> Swept:
        """Those of a page that are over. What has to stay is named, and stops nothing."""
        principal.require(Scope.TASKS_WRITE)
        if wanted == TaskFilter():
            raise InvalidRequest(
                "that would be every task of the team",
                remediation="say which: by state, age, label, agent, batch or sandbox",
            )
        if unfinished := wanted.states - OVER:
            raise InvalidRequest(
                f"tasks that are {', '.join(sorted(unfinished))} are not over",
                remediation=f"cancel them first; deleted are those that are: "
                f"{', '.join(sorted(OVER))}",
            )
        over = replace(wanted, states=wanted.states or OVER)
        found = await self._store.read(lambda tx: tx.tasks.list(principal.team_id, over, page))
        swept = Swept(next=found[page.limit - 2].id if len(found) == page.limit else "")
        for task in found[: page.limit - 1]:
            try:
                swept = swept.plus(await self._one(principal, task, terms))
            except PaddockError as error:
                swept = swept.plus(Swept(kept=(Kept(task.id, error.message),)))
        await self._clear(found, swept, terms)
        return swept

    async def _clear(self, tasks: Sequence[TaskRecord], swept: Swept, terms: Terms) -> None:
        """What sandboxes keep of those that went, unless they went too."""
        if not terms.dry_run:
            went = [task for task in tasks if task.id in swept.tasks]
            await self._trees.forget(t for t in went if t.sandbox_id not in swept.sandboxes)

    async def forget_old(self, before: float) -> int:
        """Those that ended before; how many. What is nowhere else stays on record."""
        place, count = "", 0
        while found := await self._old(before, place):
            place = found[-1].id
            gone = [task for task in found if not await self._loss(task)]
            count += await self._forget(gone)
            await self._trees.forget(gone)
        return count

    async def _old(self, before: float, after: str) -> Sequence[TaskRecord]:
        return await self._store.read(lambda tx: tx.tasks.ended(before, after, _FEW))

    async def _forget(self, tasks: Sequence[TaskRecord]) -> int:
        """In small transactions, so that nobody waits long for the writer."""
        return await self._store.write(lambda tx: _forget(tx, tasks))

    async def _one(self, principal: Principal, task: TaskRecord, terms: Terms) -> Swept:
        if not task.state.is_final:
            raise Conflict(
                f"task {task.id} is {task.state}", remediation="cancel it, or wait for its end"
            )
        loss = "" if terms.force else await self._loss(task)
        if loss:
            raise Conflict(
                f"task {task.id} made what is nowhere else: {loss}",
                remediation="take it out (`paddock task diff`), or lose it with --force (`force` "
                "in the API)",
            )
        await self._store.read(lambda tx: _check_not_awaited(tx, task))
        boxes = await self._own_sandboxes(task) if terms.sandbox else ()
        swept = Swept((task.id,), tuple(boxes))
        if terms.dry_run:
            return swept
        for box in boxes:
            await self._sandboxes.delete(principal, box, force=terms.force)
        await self._store.write(lambda tx: self._remove(tx, principal, task, swept))
        return swept

    def _remove(
        self, tx: Transaction, principal: Principal, task: TaskRecord, swept: Swept
    ) -> None:
        _check_not_awaited(tx, task)
        now = self._clock.wall()
        before = {"name": task.name, "state": task.state, "held_work": task.holds_work}
        detail = {"before": before, "sandboxes": list(swept.sandboxes)}
        if _forget(tx, [task]):
            tx.events.append([note(task, EventKind.TASK_DELETED, now, {"by": principal.actor})])
            entry = AuditEntry(task.team_id, principal.actor, "task.delete", task.id, now, detail)
            tx.audit.append([entry])

    async def _loss(self, task: TaskRecord) -> str:
        """In words, what would be lost with it: its sandbox would not be kept for it any more."""
        if not task.holds_work:
            return ""
        box = await self._store.read(lambda tx: tx.sandboxes.get(task.team_id, task.sandbox_id))
        if box is None or box.is_gone:
            return ""
        files = len(task.result.files) if task.result else 0
        return f"{files} files that it changed, in sandbox {box.name}"

    async def _own_sandboxes(self, task: TaskRecord) -> Sequence[str]:
        """With those that were lost under it."""
        lost = [each.sandbox_id for each in task.losses]

        def there(tx: Transaction) -> list[str]:
            found = (tx.sandboxes.get(task.team_id, each) for each in dict.fromkeys(lost))
            return [each.id for each in found if each is not None and not each.is_gone]

        own = await self._own_sandbox(task)
        return [*([own] if own else ()), *await self._store.read(there)]

    async def _own_sandbox(self, task: TaskRecord) -> str:
        """The one that was made for it, if it is there. Never one that others are at work in."""
        if not task.wish.workspace.makes_one or not task.sandbox_id:
            return ""
        there = TaskFilter(sandbox_id=task.sandbox_id)

        def look(tx: Transaction) -> tuple[bool, Sequence[TaskRecord]]:
            box = tx.sandboxes.get(task.team_id, task.sandbox_id)
            is_there = box is not None and not box.is_gone
            return is_there, tx.tasks.list(task.team_id, there, Page(_IN_ONE_SANDBOX))

        is_there, others = await self._store.read(look)
        for other in others:
            if not other.state.is_final:
                raise Conflict(
                    f"task {other.id} is {other.state} in the sandbox of task {task.id}",
                    remediation="wait for its end, or leave the sandbox",
                )
            if other.id != task.id and other.holds_work:
                raise Conflict(
                    f"what task {other.id} made is in the sandbox of task {task.id} and nowhere "
                    "else",
                    remediation=f"take it out (`paddock task diff {other.id}`), or leave the "
                    "sandbox",
                )
        return task.sandbox_id if is_there else ""


def _check_not_awaited(tx: Transaction, task: TaskRecord) -> None:
    if tx.tasks.is_awaited(task.id):
        raise Conflict(
            f"a task that comes after {task.id} has not begun",
            remediation="wait until it has, or cancel it",
        )


def _forget(tx: Transaction, tasks: Sequence[TaskRecord]) -> int:
    for task in tasks:
        forget_task(tx, task.team_id, task.id)
    return tx.tasks.remove([task.id for task in tasks])
