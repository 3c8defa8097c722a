"""Best of N: several agents try the same from the same beginning, and one of them is taken."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paddock.domain.errors import Conflict, InvalidRequest, NotFound
from paddock.domain.event import EventKind
from paddock.domain.ids import new_id
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.task_wish import TaskWish, Workspace
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Store, Transaction
from paddock.ports.tasks import TaskFilter
from paddock.services.task_events import note
from paddock.services.task_pause import entry
from paddock.services.task_tree import Tree
from paddock.services.task_workspace import Workspaces
from paddock.services.tasks import Submission, Tasks, acting

ATTEMPTS_PREFIX = "att"
MOST = 16
_LARGEST_PATCH = 32 << 20


@dataclass(frozen=True, slots=True)
class Variant:
    """Who tries; what is empty is as in the wish."""

    agent: str = ""
    model: str = ""


class Attempts:
    """Groups of tasks that try the same."""

    def __init__(self, store: Store, clock: Clock, tasks: Tasks, workspaces: Workspaces) -> None:
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._workspaces = workspaces
        self._adopting = asyncio.Lock()

    async def begin(
        self,
        principal: Principal,
        submitted: Submission,
        variants: Sequence[Variant],
        key: str = "",
    ) -> Sequence[TaskRecord]:
        """One task for each, every one in a copy of the workspace, or all of them not at all."""
        if not 1 < len(variants) <= MOST:
            raise InvalidRequest(
                f"{len(variants)} attempts; between 2 and {MOST} can be compared",
                remediation="say `attempts`, or name the agents that shall try",
            )
        group = _group(principal, key)
        wish = replace(submitted.wish, workspace=_copied(submitted.wish.workspace))
        tries = [replace(submitted, wish=_by(wish, each), attempt_of=group) for each in variants]
        return await self._tasks.create_all(principal, tries, key)

    async def of(self, principal: Principal, group: str) -> Sequence[TaskRecord]:
        """In the order in which they were begun."""
        wanted = TaskFilter(attempt_of=group)
        found = await self._tasks.list(principal, wanted, Page(MOST)) if group else []
        if not found:
            raise NotFound(
                f"there are no attempts {group[:80]}",
                remediation="`paddock task ls` shows tasks and the attempts that they belong to",
            )
        return list(reversed(found))

    async def adopt(self, principal: Principal, task_id: str) -> TaskRecord:
        """What it made is in the sandbox that its group began with; the others stay as they are,
        and may go with their sandboxes. Where they began with a template, its own is the one."""
        principal.require(Scope.TASKS_WRITE)
        async with self._adopting:  # one of a group, and that once
            return await self._adopt(principal, task_id)

    async def _adopt(self, principal: Principal, task_id: str) -> TaskRecord:
        task = await self._tasks.get(principal, task_id)
        if task.is_adopted:
            return task
        _check_adoptable(task, await self.of(principal, task.attempt_of))
        if source := task.wish.workspace.fork:
            await self._tasks.check_idle(task, source)
            await self._bring(acting(task, principal), source)

        def write(tx: Transaction) -> TaskRecord:
            now = self._clock.wall()
            changed = None
            for each in tx.tasks.list(task.team_id, TaskFilter(attempt_of=task.attempt_of), _ALL):
                mine = each.id == task.id
                # What was tried in vain is given up; what was taken is elsewhere only if brought.
                out = each.is_extracted or not mine or bool(source)
                stored = tx.tasks.replace(replace(each, is_adopted=mine, is_extracted=out))
                changed = stored if mine else changed
            assert changed is not None
            data = {"group": task.attempt_of, "into": source}
            tx.events.append([note(changed, EventKind.TASK_ADOPTED, now, data)])
            tx.audit.append([entry(principal, changed, "task.adopt", now, **data)])
            return changed

        return await self._store.write(write)

    async def _bring(self, task: TaskRecord, source: str) -> None:
        async with self._workspaces.tree(task) as tree:
            patch, is_cut = await tree.diff(most=_LARGEST_PATCH)
        if is_cut:
            raise Conflict(
                f"what task {task.id} changed has more than {_LARGEST_PATCH} bytes",
                remediation="take the files out of its sandbox yourself",
            )
        there = replace(task, sandbox_id=source)
        place = await self._workspaces.prepare(there)
        async with self._workspaces.enter(there) as entered:
            await Tree(entered.guest, place.directory, task.id).apply(patch)


_ALL = Page(MOST)


def _group(principal: Principal, key: str) -> str:
    """The same for the same key, so that what is sent again is the same request."""
    if not key:
        return new_id(ATTEMPTS_PREFIX)
    said = f"{principal.team_id}|{principal.actor}|{key}".encode()
    return f"{ATTEMPTS_PREFIX}_{hashlib.sha256(said).hexdigest()[:26]}"


def _copied(workspace: Workspace) -> Workspace:
    """A sandbox that is there is not worked in by several at once, but by each in a copy."""
    if workspace.sandbox:
        return replace(workspace, sandbox="", fork=workspace.sandbox)
    return workspace


def _by(wish: TaskWish, variant: Variant) -> TaskWish:
    agent = variant.agent or wish.agent
    model = variant.model or (wish.model if agent == wish.agent else "")
    return replace(wish, agent=agent, model=model)


def _check_adoptable(task: TaskRecord, group: Sequence[TaskRecord]) -> None:
    if task.state is not TaskState.COMPLETED:
        raise Conflict(
            f"task {task.id} is {task.state}, and only one that is completed can be adopted",
            remediation="wait for its end, or adopt another attempt",
        )
    taken = [each.id for each in group if each.is_adopted and each.id != task.id]
    if taken:
        raise Conflict(
            f"task {taken[0]} of the same attempts was adopted before",
            remediation="what was adopted is in the sandbox; revert that task first",
        )
    if task.result is None or not task.result.commit:
        raise Conflict(
            f"what task {task.id} changed is not known",
            remediation="take the files out of its sandbox yourself",
        )
