"""When a message is likely to reach an agent: only where there is something to go by."""

from itertools import pairwise
from statistics import median

from paddock.domain.conversation import Conversation
from paddock.domain.message import Mode
from paddock.domain.task import TaskRecord, TaskState

_FEWEST = 3
"""Tool boundaries of a run, before the next one can be guessed from them."""
_FAR_BEYOND = 4
"""So many times as long as the longest of the last steps: this one is of another kind."""


def expected_at(task: TaskRecord, mode: Mode, now: float) -> float | None:
    """When the agent reads it, if all goes on as before. None is unknown: nobody is at work, or
    nothing says how long this step or this turn takes."""
    if not _is_at_work(task):
        return None
    if mode is Mode.INTERRUPT:
        return now
    return _next_boundary(task.conversation, now) if mode is Mode.NOW else None


def _is_at_work(task: TaskRecord) -> bool:
    talk = task.conversation
    is_wanted = not task.paused_by and not task.is_cancelled
    is_listening = talk.is_started and talk.is_running and not talk.is_over and not talk.is_closing
    is_ending = talk.must_stop or talk.stopping_since is not None
    return task.state is TaskState.RUNNING and is_wanted and is_listening and not is_ending


def _next_boundary(talk: Conversation, now: float) -> float | None:
    """As far from the last one as they were from each other lately."""
    times = talk.boundaries
    if len(times) < _FEWEST:
        return None
    steps = [after - before for before, after in pairwise(times)]
    if now - times[-1] > _FAR_BEYOND * max(steps):
        return None
    return max(now, times[-1] + median(steps))
