"""A task on its way to its agent: how long each step may take, and how often it is given out."""

from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.vitals import Thresholds, lasting


def longest_step_s(task: TaskRecord, thresholds: Thresholds) -> float | None:
    """Without a step further for so long, it hangs; None where that is not for us to say. What
    really takes long gets longer with every time that it is given out."""
    limits = {
        TaskState.PENDING: thresholds.claimed_lasts_s,
        TaskState.CREATING: thresholds.step_lasts_s,
    }
    limit = limits.get(task.state, 0.0)
    return limit * max(1, task.attempts) if limit else None


def is_given_up(task: TaskRecord, thresholds: Thresholds) -> bool:
    return task.attempts >= thresholds.most_starts > 0


def why_it_hangs(task: TaskRecord, silent_s: float) -> str:
    at = f" at {task.phase}" if task.phase else ""
    return f"it was {task.state}{at} for {lasting(silent_s)} and came no step further"
