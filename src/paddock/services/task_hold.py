"""A task in the hands of one worker: what it does is written down together with what it changes.

Whoever lost a task to another worker, because it was silent for too long, can write nothing more:
every write says by which fence the task is held, and a higher one was given to the other.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from paddock.domain.errors import NotFound
from paddock.domain.event import Event
from paddock.domain.task import TaskRecord, TaskState
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.ports.tasks import Step

T = TypeVar("T")
AT_WORK = (TaskState.CREATING, TaskState.RUNNING, TaskState.COMPLETING)
"""What there is to say of these is what is in their way."""
Change = Callable[[Transaction, TaskRecord], TaskRecord]
"""What a step does to the task, in the same transaction; it may write more."""


class Fenced(Exception):
    """Another worker has the task by now. Whoever is told so stops, and writes nothing."""


class Hold:
    """One worker's grip on one task."""

    def __init__(self, store: Store, clock: Clock, task: TaskRecord, done: dict[str, Any]) -> None:
        self._store = store
        self._clock = clock
        self._fence = task.lease.fence
        self._done = done
        self.tries = task.attempts
        """How often it was taken up without coming to an end, with this time."""
        self.task = task
        """As it was when this worker last wrote to it."""

    @classmethod
    async def take(cls, store: Store, clock: Clock, task: TaskRecord) -> "Hold":
        journal = await store.read(lambda tx: tx.steps.of(task.id))
        return cls(store, clock, task, {step.name: step.output for step in journal})

    @property
    def progress(self) -> object:
        """Another one whenever the task has come a step further."""
        return self.task.state, self.task.phase, len(self._done)

    def has_done(self, name: str) -> bool:
        return name in self._done

    def output(self, name: str) -> Any:
        """What a step gave that was done before; None when it was not."""
        return self._done.get(name)

    async def step(
        self,
        name: str,
        do: Callable[[], Awaitable[Any]],
        change: Callable[[TaskRecord, Any], TaskRecord] = lambda task, _output: task,
        tell: Callable[[TaskRecord, Any], Sequence[Event]] = lambda _task, _output: (),
    ) -> Any:
        """What `do` gave, which is done once: what a crash cut off between the deed and its record
        is done again, so it has to be something that can be. Plain data, since it is kept."""
        if name in self._done:
            return self._done[name]
        output = await do()

        def commit(tx: Transaction, current: TaskRecord) -> TaskRecord:
            tx.steps.add(Step(self.task.id, name, output, self._clock.wall()))
            changed = change(current, output)
            tx.events.append(tell(changed, output))
            return changed

        await self.change(commit)
        self._done[name] = output
        return output

    async def change(self, change: Change, *events: Event) -> TaskRecord:
        """The task as it is then; Fenced when it is another's. Events are told with it."""
        return await self._write(lambda tx, task: _further(change(tx, task)), events)

    async def _write(self, change: Change, events: Sequence[Event] = ()) -> TaskRecord:
        def work(tx: Transaction) -> TaskRecord:
            current = self._current(tx)
            changed = change(tx, current)
            stored = current if changed == current else tx.tasks.replace(changed)
            tx.events.append(events)
            return stored

        self.task = await self._store.write(work)
        return self.task

    async def refresh(self) -> TaskRecord:
        """What others may have asked for meanwhile; Fenced when it is another's."""
        self.task = await self._store.read(self._current)
        return self.task

    async def look(self, read: Callable[[Transaction, TaskRecord], T]) -> T:
        """What is written elsewhere about the task."""
        return await self._store.read(lambda tx: read(tx, self._current(tx)))

    async def let_go(
        self,
        *,
        for_s: float = 0.0,
        attempts: int | None = None,
        told: Sequence[Event] = (),
        change: Change = lambda _tx, task: task,
    ) -> None:
        """Somebody else may go on with it, at once or after a while."""
        until = self._clock.wall() + for_s if for_s else 0.0

        def release(tx: Transaction, current: TaskRecord) -> TaskRecord:
            tried = current.attempts if attempts is None else attempts
            # Who is to end it is not waited for.
            wait = 0.0 if current.is_cancelled and not self.task.is_cancelled else until
            lease = replace(current.lease, owner="", until=wait)
            return replace(change(tx, current), lease=lease, attempts=tried)

        await self._write(release, told)

    def _current(self, tx: Transaction) -> TaskRecord:
        current = tx.tasks.current(self.task.id, self.task.wish)
        if current is None:
            raise NotFound(f"task {self.task.id} is not on record any more")
        if current.lease.fence != self._fence:
            raise Fenced(self.task.id)
        return current


def _further(task: TaskRecord) -> TaskRecord:
    """Who comes a step further is not one that ends every worker, and nothing is in its way."""
    detail = "" if task.state in AT_WORK else task.detail
    return replace(task, attempts=0, detail=detail, standing=None)
