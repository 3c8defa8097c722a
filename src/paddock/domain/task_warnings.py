"""Warnings about a completed task: no evidence of work, or a skipped review."""

from paddock.domain.agent import WorkMode
from paddock.domain.task import Result, TaskRecord

UNPROVEN = (
    "nothing shows that the work was done: no file changed, no tool was used, no check passed"
)


def warnings_of(task: TaskRecord, result: Result) -> tuple[str, ...]:
    """Of a task that is about to be completed. An answer to a question looks the same as an empty
    claim, so that neither fails."""
    if task.wish.mode is not WorkMode.IMPLEMENT:
        return ()
    found = [] if _is_proven(task, result) else [UNPROVEN]
    review = task.wish.review
    if review is not None and review.rounds and not task.reviews:
        found.append(
            f"it was not reviewed: fewer than {review.min_lines} lines changed (review.min_lines)"
        )
    return tuple(found)


def _is_proven(task: TaskRecord, result: Result) -> bool:
    """An approved review counts as evidence."""
    return (
        bool(result.files or result.unseen)
        or task.conversation.has_used_tool
        or any(each.is_good for each in result.checks)
        or (result.health is not None and result.health.is_well)
        or any(each.is_approved for each in task.reviews)
    )
