"""Which of the tasks that wait may begin."""

from collections.abc import Sequence

from paddock.domain.errors import Conflict
from paddock.domain.task import TaskRecord, check_after
from paddock.domain.task_queue import TaskLimits, Waiting, turns
from paddock.ports.clock import Clock
from paddock.ports.store import Transaction


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
            [
                Waiting(task.id, task.team_id, task.provider, task.wish.workspace.sandbox)
                for task in ready
            ],
            tx.tasks.active(now),
            tx.tasks.busy(now),
            self.limits,
        )
        by_id = {task.id: task for task in ready}
        return [*doomed, *(by_id[each] for each in found)]
