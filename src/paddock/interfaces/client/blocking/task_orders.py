"""What somebody wants of a task: that it stands still, goes on, ends, or is undone.

Written by scripts/blocking.py; do not edit.
"""

from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.task_orders import AsyncTaskOrders
from paddock.interfaces.client.task_results import TaskInfo


class TaskOrders:
    """One task, and how it is. Every verb may be repeated."""

    _inner: AsyncTaskOrders

    def __init__(self, inner: AsyncTaskOrders) -> None:
        self._inner = inner

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def name(self) -> str:
        return self._inner.name

    def info(self) -> TaskInfo:
        """How it is now."""
        return portal().run(self._inner.info())

    def cancel(self) -> TaskInfo:
        """Its agent is asked to end, then made to; `wait` says when. One that is over stays so."""
        return portal().run(self._inner.cancel())

    def pause(self) -> TaskInfo:
        """Its agent stands still, and its clock with it; one that has not begun does not begin.
        Conflict for what is over, or waits for an answer."""
        return portal().run(self._inner.pause())

    def resume(self) -> TaskInfo:
        """One goes on that somebody or its guardian has paused."""
        return portal().run(self._inner.resume())

    def revert(self) -> TaskInfo:
        """The workspace is as it was before its agent began; what there is now is kept aside."""
        return portal().run(self._inner.revert())
