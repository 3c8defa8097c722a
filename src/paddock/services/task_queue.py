"""Which of the tasks that wait may begin."""

from collections.abc import Sequence
from dataclasses import replace

from paddock.domain.errors import Conflict
from paddock.domain.task import TaskRecord, TaskState, check_after
from paddock.domain.task_queue import TaskLimits, Waiting, turns, why_waiting
from paddock.ports.clock import Clock
from paddock.ports.store import Transaction

_DONE = TaskState.COMPLETED


class TaskQueue:
    """Fair to teams, and never more at once than there is room for."""

    def __init__(self, limits: TaskLimits, clock: Clock) -> None:
        self._clock = clock
        self.limits = limits
        """May be changed at any time."""

    def __call__(self, tx: Transaction, waiting: Sequence[TaskRecord]) -> Sequence[TaskRecord]:
        ready, doomed, now = [], [], self._clock.wall()
        needed = {each for task in waiting for each in task.wish.after}
        states = tx.tasks.states(needed) if needed else {}
        for task in waiting:
            after = {each: states[each] for each in task.wish.after if each in states}
            try:
                if check_after(task.id, after):
                    ready.append(task)
            except Conflict:
                doomed.append(task)  # it is taken up to be ended, with the reason
        if not ready:
            return doomed
        found = turns(
            [_entry(task) for task in ready],
            tx.tasks.active(now),
            tx.tasks.busy(now),
            self.limits,
        )
        by_id = {task.id: task for task in ready}
        return [*doomed, *(by_id[each] for each in found)]

    def explained(self, tx: Transaction, tasks: Sequence[TaskRecord]) -> Sequence[TaskRecord]:
        """The same; those that are pending say why in `detail`."""
        waiting = [each for each in tasks if each.state is TaskState.PENDING]
        if not waiting:
            return tasks
        now = self._clock.wall()
        states = tx.tasks.states({each for task in waiting for each in task.wish.after})
        active, busy = tx.tasks.active(now), tx.tasks.busy(now)

        def why(task: TaskRecord) -> str:
            before = [each for each in task.wish.after if states.get(each) is not _DONE]
            if before:
                return f"waits for {', '.join(before)} to be completed"
            if task.paused_by:
                return f"paused by {task.paused_by}"
            return why_waiting(_entry(task), active, busy, self.limits)

        return [replace(each, detail=why(each)) if each in waiting else each for each in tasks]


def _entry(task: TaskRecord) -> Waiting:
    return Waiting(task.id, task.team_id, task.provider, task.wish.workspace.sandbox)
