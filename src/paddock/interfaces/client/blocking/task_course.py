"""What becomes of a task: followed, steered, ended, and what it leaves.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Callable, Iterator, Sequence

from paddock.interfaces.client.blocking.task_orders import TaskOrders
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.results import Event
from paddock.interfaces.client.task_course import AsyncTaskCourse
from paddock.interfaces.client.task_results import Diff, MessageInfo, TaskInfo


class TaskCourse(TaskOrders):
    """The course of one task. Every verb may be repeated."""

    _inner: AsyncTaskCourse

    def __init__(self, inner: AsyncTaskCourse) -> None:
        super().__init__(inner)
        self._inner = inner

    def wait(self, timeout: float | None = None) -> TaskInfo:
        """Until it is over: completed, failed or cancelled. TimedOut when that takes longer; it
        goes on."""
        return portal().run(self._inner.wait(timeout))

    def events(
        self, *, after: int = 0, kinds: Sequence[str] = (), follow: bool = True
    ) -> Iterator[Event]:
        """Its events from the first on, and then as they happen, until it is over; each once, also
        when the connection breaks or the server restarts. Of some kinds, and the last."""
        return portal().each(self._inner.events(after=after, kinds=kinds, follow=follow))

    def send(self, text: str, *, mode: str = "now", ttl: float | None = None) -> MessageInfo:
        """Tell its agent something while it works: `now` at the next tool boundary, at the end of
        this `turn`, or at once as an `interrupt`. InvalidRequest for a mode that it lacks. With a
        `ttl` in seconds it is delivered by then or never."""
        return portal().run(self._inner.send(text, mode=mode, ttl=ttl))

    def messages(self) -> Iterator[MessageInfo]:
        """What its agent was told, with receipts, in the order in which it was sent."""
        return portal().each(self._inner.messages())

    def diff(self) -> Diff:
        """What it changed. Conflict while that is not known."""
        return portal().run(self._inner.diff())

    def output(self, on_cut: Callable[[], object] | None = None) -> Iterator[bytes]:
        """What its agent has written so far, as it wrote it, piece by piece. `on_cut` is called
        first if it wrote more than is kept."""
        return portal().each(self._inner.output(on_cut))
