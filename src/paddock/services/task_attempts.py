"""Best of N: several agents try the same from the same beginning, and one of them is taken."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paddock.domain.errors import Conflict, InvalidRequest, NotFound, PaddockError
from paddock.domain.event import EventKind
from paddock.domain.ids import new_id
from paddock.domain.task import Adoption, TaskRecord, TaskState
from paddock.domain.task_wish import TaskWish, Workspace
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Store, Transaction
from paddock.ports.tasks import TaskFilter
from paddock.services.task_events import note
from paddock.services.task_pause import entry
from paddock.services.task_plans import Submission
from paddock.services.task_tree import Tree
from paddock.services.task_workspace import Workspaces
from paddock.services.tasks import Tasks, acting

ATTEMPTS_PREFIX = "att"
_MARK = "adp"
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
        if _is_told(task):
            return task
        await self.of(principal, task.attempt_of)
        if source := task.wish.workspace.fork:
            await self._tasks.check_idle(task, source)
        task = await self._store.write(lambda tx: _claimed(tx, task, source))
        try:
            if source and task.adoption is not None:
                await self._bring(acting(task, principal), task.adoption)
        except PaddockError as error:
            is_known = not error.retryable
            await self._store.write(lambda tx: _let_go(tx, task, nothing_done=is_known))
            raise
        return await self._store.write(lambda tx: self._noted(tx, principal, task))

    async def _bring(self, task: TaskRecord, adoption: Adoption) -> None:
        """What is there is kept first, and known before anything is changed."""
        async with self._workspaces.tree(task) as tree:
            patch, is_cut = await tree.diff(most=_LARGEST_PATCH)
        if is_cut:
            raise Conflict(
                f"what task {task.id} changed has more than {_LARGEST_PATCH} bytes",
                remediation="take the files out of its sandbox yourself",
            )
        there = replace(task, sandbox_id=adoption.sandbox_id, losses=())
        place = await self._workspaces.prepare(there)
        async with self._workspaces.enter(there) as entered:
            tree = Tree(entered.guest, place.directory, task.id)
            commit = await tree.keep(adoption.mark)
            at = replace(adoption, directory=place.directory, checkpoint=commit)
            await self._store.write(lambda tx: _note(tx, task, at))
            await tree.apply(patch)

    def _noted(self, tx: Transaction, principal: Principal, task: TaskRecord) -> TaskRecord:
        now, source, changed = self._clock.wall(), task.wish.workspace.fork, None
        for each in tx.tasks.list(task.team_id, TaskFilter(attempt_of=task.attempt_of), _ALL):
            mine = each.id == task.id
            if mine and _is_told(each):
                return each  # somebody else has brought it meanwhile
            # What was tried in vain is given up; what was taken is elsewhere only if brought.
            out = each.is_extracted or not mine or bool(source)
            adoption = replace(each.adoption, is_done=True) if each.adoption and mine else None
            stored = tx.tasks.replace(replace(each, adoption=adoption, is_extracted=out))
            changed = stored if mine else changed
        assert changed is not None
        data = {"group": task.attempt_of, "into": source}
        tx.events.append([note(changed, EventKind.TASK_ADOPTED, now, data)])
        tx.audit.append([entry(principal, changed, "task.adopt", now, **data)])
        return changed


_ALL = Page(MOST)


def _claimed(tx: Transaction, task: TaskRecord, source: str) -> TaskRecord:
    """In the store first: another server may be asked to adopt another one. Whoever comes again,
    after a crash too, goes on with what was begun."""
    group = tx.tasks.list(task.team_id, TaskFilter(attempt_of=task.attempt_of), _ALL)
    current = next(each for each in group if each.id == task.id)
    _check_adoptable(current, group)
    begun = current.adoption or Adoption(new_id(_MARK), source)
    claimed = replace(current, is_adopted=True, adoption=begun)
    return current if current.is_adopted else tx.tasks.replace(claimed)


def _is_told(task: TaskRecord) -> bool:
    """It is adopted for good; older versions kept no more of it than that."""
    return task.is_adopted and (task.adoption is None or task.adoption.is_done)


def _note(tx: Transaction, task: TaskRecord, at: Adoption) -> None:
    if (current := tx.tasks.get(task.team_id, task.id)) is not None:
        tx.tasks.replace(replace(current, adoption=at))


def _let_go(tx: Transaction, task: TaskRecord, *, nothing_done: bool) -> None:
    """Another may be adopted. Where nobody knows what was done, what was there before stays
    known."""
    current = tx.tasks.get(task.team_id, task.id)
    if current is not None and not _is_told(current):
        adoption = None if nothing_done else current.adoption
        tx.tasks.replace(replace(current, is_adopted=False, adoption=adoption))


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
            remediation=f"`paddock task revert {taken[0]}` undoes that, and puts the sandbox back "
            "to what it was before; then adopt this one",
        )
    if task.result is None or not task.result.commit:
        raise Conflict(
            f"what task {task.id} changed is not known",
            remediation="take the files out of its sandbox yourself",
        )
