"""Tasks: what somebody can do with them. Who carries them out is `task_run`."""

from collections.abc import Sequence
from dataclasses import replace

from paddock.domain.errors import Conflict
from paddock.domain.event import EventKind
from paddock.domain.quota import Usage
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord
from paddock.domain.task import TaskRecord, TaskState, moved
from paddock.domain.task_plan import Rehearsal, rehearsed
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Store, Transaction
from paddock.ports.tasks import Output, TaskFilter
from paddock.services import task_mail
from paddock.services.once import Once, Repeatable
from paddock.services.quotas import check_quota
from paddock.services.task_events import note, state_event
from paddock.services.task_messages import TaskMessages
from paddock.services.task_pause import TaskPauses, entry, found, standing
from paddock.services.task_plans import Submission, TaskPlans
from paddock.services.task_queue import TaskQueue
from paddock.services.task_setting import AgentSettings
from paddock.services.task_workspace import Workspaces

_LOOKED_AT = 200
_FIRST = Page(1000)
_AT_WORK = (TaskState.CREATING, TaskState.RUNNING, TaskState.COMPLETING)
_LISTENS = (TaskState.PENDING, TaskState.CREATING, TaskState.RUNNING, TaskState.WAITING)


class TaskQuestions:
    """What can be asked about tasks. Nothing is changed by it."""

    def __init__(self, store: Store, queue: TaskQueue) -> None:
        self._store = store
        self._queue = queue

    async def get(self, principal: Principal, task_id: str) -> TaskRecord:
        """Return a task. A pending one has the reason in `detail`."""
        principal.require(Scope.TASKS_READ)

        def read(tx: Transaction) -> TaskRecord:
            return self._queue.explained(tx, [found(tx, principal.team_id, task_id)])[0]

        return await self._store.read(read)

    async def list(
        self, principal: Principal, wanted: TaskFilter, page: Page
    ) -> Sequence[TaskRecord]:
        principal.require(Scope.TASKS_READ)

        def read(tx: Transaction) -> Sequence[TaskRecord]:
            return self._queue.explained(tx, tx.tasks.list(principal.team_id, wanted, page))

        return await self._store.read(read)

    async def output(
        self, principal: Principal, task_id: str, after: tuple[int, int], limit: int
    ) -> Sequence[Output]:
        """What its agent wrote, as it wrote it."""
        task = await self.get(principal, task_id)
        return await self._store.read(lambda tx: tx.outputs.of(task.id, after, limit))


class Tasks(TaskQuestions, TaskMessages, TaskPauses):
    """The verbs of one noun. Every one is safe to repeat."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        once: Once,
        *,
        plans: TaskPlans,
        settings: AgentSettings,
        workspaces: Workspaces,
        queue: TaskQueue,
    ) -> None:
        super().__init__(store, queue)
        self._clock = clock
        self._once = once
        self._plans = plans
        self._settings = settings
        self._workspaces = workspaces

    async def create(
        self, principal: Principal, submitted: Submission, key: str = ""
    ) -> TaskRecord:
        """It waits for its turn from then on. What can be known to be wrong is refused now."""
        return (await self.create_all(principal, [submitted], key))[0]

    async def create_all(
        self, principal: Principal, submitted: Sequence[Submission], key: str = ""
    ) -> Sequence[TaskRecord]:
        """All of them, or none."""
        principal.require(Scope.TASKS_WRITE)
        principal.require(Scope.SANDBOXES_WRITE)
        records = _in_order([await self._plans.plan(principal, each) for each in submitted])

        def write(tx: Transaction) -> tuple[str, list[TaskRecord]]:
            check_quota(tx, principal.team_id, Usage(tasks=len(records)))
            for record in records:
                self._check_after(tx, record)
                tx.tasks.add(record)
                detail = {"name": record.name, "agent": record.agent}
                tx.events.append([state_event(record, record.created_at, principal.actor)])
                tx.audit.append(
                    [entry(principal, record, "task.create", record.created_at, **detail)]
                )
            return records[0].id, records

        request = Repeatable(principal, key, "task", submitted)
        return await self._once.write(
            request, write, list[TaskRecord], stands=lambda tx, made: _stand(tx, principal, made)
        )

    async def retry(self, principal: Principal, task_id: str, key: str = "") -> TaskRecord:
        """The same once more, as a task of its own. Conflict while the first is not over."""
        task = await self.get(principal, task_id)
        if not task.state.is_final:
            raise Conflict(
                f"task {task.id} is {task.state}, and only a task that is over can be retried",
                remediation="wait for its end, or cancel it",
            )
        return await self.create(principal, Submission(task.wish, batch=task.batch), key)

    async def rehearse(self, principal: Principal, submitted: Submission) -> Rehearsal:
        """What would be done, and nothing of it is. What `create` would refuse, is refused."""
        principal.require(Scope.TASKS_WRITE)
        principal.require(Scope.SANDBOXES_WRITE)
        task = await self._plans.plan(principal, submitted)
        await self._store.read(lambda tx: self._check_after(tx, task))
        return rehearsed(task, self._settings.agent(task.agent).traits)

    async def cancel(self, principal: Principal, task_id: str) -> TaskRecord:
        """Its agent is asked to end, then made to. One that is over stays as it is."""
        principal.require(Scope.TASKS_WRITE)

        def write(tx: Transaction) -> TaskRecord:
            now = self._clock.wall()
            task = found(tx, principal.team_id, task_id)
            if task.state.is_final or task.is_cancelled:
                return task
            after = {"cancelling": True}
            change = {"before": standing(task), "after": after}
            tx.audit.append([entry(principal, task, "task.cancel", now, **change)])
            tx.events.append([note(task, EventKind.TASK_CANCELLING, now, {"by": principal.actor})])
            task = replace(task, is_cancelled=True, changed_at=now)
            if task.state is TaskState.PENDING and (task.lease.until < now or not task.lease.owner):
                task = moved(task, TaskState.CANCELLED, now, reason=Reason.CANCELLED)
                task_mail.give_up(tx, task.id, "its task was cancelled", now)
                tx.events.append([state_event(task, now, principal.actor)])
            elif not task.lease.owner:  # it rests, because somebody is away: that is over now
                task = replace(task, lease=replace(task.lease, until=0.0))
            return tx.tasks.replace(task)

        return await self._store.write(write)

    async def diff(self, principal: Principal, task_id: str) -> tuple[bytes, bool]:
        """What its agent changed, and whether that is not all of it."""
        task = await self.get(principal, task_id)
        if task.result is None or not task.result.commit:
            why = task.result.unseen if task.result else f"it is {task.state}"
            raise Conflict(
                f"what task {task.id} changed is not known: {why}",
                remediation="ask when it is over, or look into its sandbox",
            )
        async with self._workspaces.tree(acting(task, principal)) as tree:
            text, is_cut = await tree.diff()
        if not is_cut and not task.result.unseen:
            await self._note_extracted(task)
        return text, is_cut

    async def _note_extracted(self, task: TaskRecord) -> None:
        """What it made is elsewhere too, so its sandbox may go."""

        def write(tx: Transaction) -> None:
            current = tx.tasks.get(task.team_id, task.id)
            if current is not None and not current.is_extracted:
                tx.tasks.replace(replace(current, is_extracted=True))

        if not task.is_extracted:
            await self._store.write(write)

    async def hold(self, sandbox: SandboxRecord) -> str:
        """What would be lost with the sandbox, in words (L6)."""
        wanted, page = TaskFilter(sandbox_id=sandbox.id), Page(_LOOKED_AT)
        listed = await self._store.read(lambda tx: tx.tasks.list(sandbox.team_id, wanted, page))
        for task in listed:
            if not task.state.is_final:
                return f"task {task.id} is {task.state} in it"
            if task.holds_work:
                files = task.result.files if task.result is not None else ()
                count = f"{len(files)} files" if files else "what may be left of the files"
                return f"{count} that task {task.id} changed"
        return ""

    async def at_work(self, sandbox: SandboxRecord) -> str:
        """The task whose agent would be broken off by a stop, in words."""
        wanted, page = TaskFilter(sandbox_id=sandbox.id), Page(_LOOKED_AT)
        listed = await self._store.read(lambda tx: tx.tasks.list(sandbox.team_id, wanted, page))
        return next((f"task {each.id}" for each in listed if each.state in _AT_WORK), "")

    async def revert(self, principal: Principal, task_id: str) -> TaskRecord:
        """The workspace is as it was before its agent began; what there was until now is kept. Of
        one that was adopted it is the one that it was brought to, and is not adopted any more."""
        principal.require(Scope.TASKS_WRITE)
        task = await self.get(principal, task_id)
        if not task.state.is_final or not task.checkpoint:
            why = "it has no checkpoint" if task.state.is_final else f"it is {task.state}"
            raise Conflict(
                f"task {task.id} cannot be reverted: {why}",
                remediation="wait for its end, or cancel it first",
            )
        place = task.where_adopted
        await self.check_idle(place)
        async with self._workspaces.tree(acting(place, principal)) as tree:
            kept = await tree.revert()

        def write(tx: Transaction) -> TaskRecord:
            now, detail = self._clock.wall(), {"kept": kept}
            change = {"before": {"commit": kept}, "after": {"commit": place.checkpoint}}
            tx.audit.append([entry(principal, task, "task.revert", now, **detail, **change)])
            tx.events.append([note(task, EventKind.TASK_REVERTED, now, detail)])
            current = found(tx, principal.team_id, task.id)
            # What was only brought elsewhere is still where it was made, and may be adopted again.
            is_given_up = place is task
            undone = replace(current, is_adopted=False, adoption=None, is_extracted=is_given_up)
            return tx.tasks.replace(undone)

        return await self._store.write(write)

    async def check_idle(self, task: TaskRecord, sandbox_id: str = "") -> None:
        """Nobody's files change while somebody works on them."""
        now, wanted = self._clock.wall(), sandbox_id or task.sandbox_id
        if wanted in await self._store.read(lambda tx: tx.tasks.busy(now)):
            raise Conflict(
                f"another task is at work in sandbox {wanted}, which task {task.id} would change",
                remediation="wait for its end, or cancel it",
            )

    def _check_after(self, tx: Transaction, task: TaskRecord) -> None:
        for each in task.wish.after:
            found(tx, task.team_id, each)


def _in_order(records: Sequence[TaskRecord]) -> list[TaskRecord]:
    """Ids of the same millisecond are in no order; those of a batch are in that of the batch."""
    ids = sorted(each.id for each in records)
    return [replace(each, id=own) for each, own in zip(records, ids, strict=True)]


def _stand(tx: Transaction, principal: Principal, made: "Sequence[TaskRecord]") -> bool:
    return all(tx.tasks.get(principal.team_id, each.id) is not None for each in made)


def acting(task: TaskRecord, principal: Principal) -> TaskRecord:
    """As if whoever asks had made it: they look with their own rights."""
    scopes = tuple(sorted(principal.scopes))
    return replace(task, actor=principal.actor, role=principal.role, scopes=scopes)
