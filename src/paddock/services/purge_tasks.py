"""Tasks of somebody who is to be forgotten: those of their sandboxes, and those that were to get
one of theirs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from paddock.domain.ids import is_id
from paddock.domain.message import Message
from paddock.domain.purge import Purge
from paddock.domain.task import TASK_PREFIX, TaskRecord, TaskState
from paddock.domain.task_wish import Workspace
from paddock.ports.store import Store, Transaction
from paddock.ports.tasks import TaskFilter
from paddock.services.belongings import Belongings, paged
from paddock.services.spending import forget_task
from paddock.services.system import system
from paddock.services.tasks import Tasks

_FEW = 20
"""A wish may be large."""


@dataclass(frozen=True, slots=True)
class OwnTask:
    """What has to be known of one before it can go."""

    id: str
    sandbox_id: str
    is_over: bool
    """Nobody is at it, and nobody waits to hear how it ended."""
    is_asked: bool
    """To end."""


class PurgeTasks:
    """They end before they go: who is at work writes on."""

    def __init__(self, store: Store, tasks: Tasks) -> None:
        self._store = store
        self._tasks = tasks

    async def find(self, purge: Purge, found: Belongings) -> Sequence[OwnTask]:
        return await self._store.read(lambda tx: list(_own(tx, purge, found)))

    async def end(self, purge: Purge, found: Belongings, tasks: Sequence[OwnTask]) -> bool:
        """Whether any was asked to only now, and should have time to. Without force none is whose
        sandbox is there: that is kept for it."""
        there = {box.id for box in found.boxes if not box.is_gone and not purge.force}
        late = [
            task
            for task in tasks
            if not task.is_over and not task.is_asked and task.sandbox_id not in there
        ]
        for task in late:
            await self._tasks.cancel(system(purge.team_id, "purge"), task.id)
        return bool(late)

    async def forget(self, purge: Purge) -> Mapping[str, int]:
        """Those that were written down, with all that is kept of them; how much there was."""
        ids = [subject for subject in purge.subjects if is_id(subject, TASK_PREFIX)]
        tasks = details = 0
        for first in range(0, len(ids), _FEW):  # what agents wrote may be large, and others wait
            some = ids[first : first + _FEW]
            gone, redacted = await self._store.write(partial(_forget, purge.team_id, some))
            tasks, details = tasks + gone, details + redacted
        return {"tasks": tasks, "audit details": details}


def _forget(team_id: str, ids: Sequence[str], tx: Transaction) -> tuple[int, int]:
    """With what the audit log tells of them: nothing would lead there any more."""
    redacted, _ = tx.audit.redact(team_id, ids)
    for task_id in ids:
        forget_task(tx, team_id, task_id)
        for message in _messages(tx, task_id):
            tx.keys.release(team_id, message.id)
    return tx.tasks.remove(ids), redacted


def _messages(tx: Transaction, task_id: str) -> Iterator[Message]:
    return paged(
        lambda page: tx.messages.of(task_id, after=page.after, limit=page.limit),
        lambda message: message.id,
    )


def _own(tx: Transaction, purge: Purge, found: Belongings) -> Iterator[OwnTask]:
    for box in found.boxes:
        for task in _listed(tx, purge.team_id, TaskFilter(sandbox_id=box.id)):
            yield _shown(tx, task)
    # None of their own yet, and maybe never: then only their wish says whose they are.
    theirs = {*found.ids, *(copy.name for copy in found.copies), *purge.subjects}
    for task in _listed(tx, purge.team_id, TaskFilter(has_sandbox=False)):
        if task.id in theirs or _wants(task.wish.workspace, theirs, purge.app):
            yield _shown(tx, task)


def _wants(workspace: Workspace, theirs: set[str], app: str) -> bool:
    is_theirs = workspace.fork in theirs or workspace.snapshot in theirs
    return is_theirs or bool(app and workspace.app == app)


def _listed(tx: Transaction, team_id: str, wanted: TaskFilter) -> Iterator[TaskRecord]:
    return paged(lambda page: tx.tasks.list(team_id, wanted, page), lambda task: task.id, _FEW)


def _shown(tx: Transaction, task: TaskRecord) -> OwnTask:
    # Without a record, one that failed would pass for one that was completed.
    is_awaited = task.state is not TaskState.COMPLETED and tx.tasks.is_awaited(task.id)
    is_over = task.state.is_final and not is_awaited
    return OwnTask(task.id, task.sandbox_id, is_over, task.is_cancelled or task.state.is_final)
