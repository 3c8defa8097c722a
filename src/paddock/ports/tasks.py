"""Where tasks are kept, with what each has done and what it is to be told."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from paddock.domain.message import Message, MessageState
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.task_wish import TaskWish
from paddock.ports.paging import Page


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which ones; empty means all."""

    states: frozenset[TaskState] = frozenset()
    agent: str = ""
    sandbox_id: str = ""
    batch: str = ""
    attempt_of: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """All of them."""
    ended_before: float | None = None
    has_sandbox: bool | None = None
    """One that never got any, or has not yet; None is both."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a task has done, and is not done again."""

    task_id: str
    name: str
    """Of what was done; each is done once."""
    output: Any
    at: float


class Tasks(Protocol):
    """A team sees its own, newest first; another's does not exist."""

    def add(self, task: TaskRecord) -> None: ...

    def get(self, team_id: str, task_id: str) -> TaskRecord | None: ...

    def current(self, task_id: str, wish: TaskWish) -> TaskRecord | None:
        """For who knows what was wished, which never changes and may be large."""
        ...

    def list(self, team_id: str, wanted: TaskFilter, page: Page) -> Sequence[TaskRecord]: ...

    def replace(self, task: TaskRecord) -> TaskRecord:
        """With its next version; Conflict when the record is of another version by now."""
        ...

    def claimable(self, now: float, limit: int) -> Sequence[TaskRecord]:
        """Every team's that have begun, are not over and that nobody is at, the oldest first. Of
        their wishes, as of those of `pending` and `held`, only what the queue needs."""
        ...

    def pending(self, now: float, each: int) -> Sequence[TaskRecord]:
        """Those that have not begun and that nobody is at: of each team, at each provider, the
        oldest so many that wait for no other task and for no sandbox. One that never can begin,
        because of what came before it, is among them."""
        ...

    def states(self, task_ids: Collection[str]) -> Mapping[str, TaskState]: ...

    def busy(self, now: float) -> frozenset[str]:
        """The sandboxes in which tasks are at work."""
        ...

    def renew(self, owner: str, task_ids: Collection[str], until: float) -> Collection[str]:
        """Those of them that are still this process's, which it keeps for longer now."""
        ...

    def held(self, owner: str = "") -> Sequence[TaskRecord]:
        """Every one that this process is at, or that any is."""
        ...

    def active(self, now: float) -> Mapping[tuple[str, str], int]:
        """How many have begun and are not over, by team and provider."""
        ...

    def counts(self, team_id: str) -> Mapping[str, int]:
        """How many there are in each state; of every team where none is named."""
        ...

    def at_work(self, team_id: str, limit: int) -> Sequence[TaskRecord]:
        """Those that have begun and are not over, the oldest first, without what was wished."""
        ...

    def oldest_waiting(self, team_id: str) -> TaskRecord | None:
        """Of those that have not begun, without what was wished."""
        ...

    def count(self, team_id: str, states: frozenset[TaskState]) -> int: ...

    def ended(self, before: float, after: str, limit: int) -> Sequence[TaskRecord]:
        """Every team's that ended before, in the order of their ids, behind this one."""
        ...

    def is_awaited(self, task_id: str) -> bool:
        """Whether one that has not begun comes after it."""
        ...

    def remove(self, task_ids: Collection[str]) -> int:
        """With their steps, messages and output; how many there were."""
        ...


class Steps(Protocol):
    """The journal of each task."""

    def add(self, step: Step) -> None:
        """Conflict when it was done before."""
        ...

    def of(self, task_id: str) -> Sequence[Step]: ...


@dataclass(frozen=True, slots=True)
class Output:
    """What an agent wrote, as it wrote it."""

    task_id: str
    run: int
    stream: str
    offset: int
    data: bytes


class Outputs(Protocol):
    """Raw lines, kept beside the events that were made of them."""

    def add(self, output: Output) -> None: ...

    def of(self, task_id: str, after: tuple[int, int], limit: int) -> Sequence[Output]:
        """Of standard output, what comes after this run and offset."""
        ...

    def size(self, task_id: str) -> int: ...


class Messages(Protocol):
    """In the order in which they were sent."""

    def add(self, message: Message) -> None: ...

    def get(self, team_id: str, message_id: str) -> Message | None: ...

    def of(
        self,
        task_id: str,
        states: frozenset[MessageState] = frozenset(),
        *,
        after: str = "",
        limit: int = 1000,
    ) -> Sequence[Message]:
        """Those behind the one of this id."""
        ...

    def queued(self) -> Sequence[str]:
        """The ids of those that wait for the agents of tasks that are not over, of every team."""
        ...

    def replace(self, message: Message) -> None:
        """NotFound when it is not there."""
        ...
