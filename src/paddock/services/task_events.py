"""What is told of tasks: their states, their agents and their messages."""

from collections.abc import Iterable, Mapping

from paddock.domain.agent_event import AgentEvent
from paddock.domain.event import Event, EventKind
from paddock.domain.message import Message
from paddock.domain.task import TaskRecord, TaskState


def state_event(task: TaskRecord, now: float, actor: str = "") -> Event:
    data: dict[str, object] = {"name": task.name, "state": task.state, "agent": task.agent}
    if task.reason:
        data |= {"reason": task.reason, "detail": task.detail}
    if task.state is TaskState.WAITING:
        data |= {"detail": task.detail, "rule": task.waits_rule}
        data |= {"approval": task.waits_for} if task.waits_for else {}
    if task.sandbox_id:
        data["sandbox"] = task.sandbox_id
    return _event(task, EventKind(f"task.{task.state}"), now, data, actor=actor)


def phase_event(task: TaskRecord, now: float) -> Event:
    return _event(task, EventKind.TASK_PHASE, now, {"phase": task.phase})


def note(task: TaskRecord, kind: EventKind, now: float, data: Mapping[str, object]) -> Event:
    return _event(task, kind, now, data)


def message_event(task_id: str, message: Message, now: float) -> Event:
    data = {"message": message.id, "mode": message.mode, "state": message.state}
    return Event(message.team_id, EventKind.TASK_MESSAGE, task_id, now, data, actor=message.actor)


def agent_events(task: TaskRecord, events: Iterable[AgentEvent], now: float) -> list[Event]:
    return [
        _event(task, EventKind(event.kind), now, {"run": task.conversation.run, **event.data})
        for event in events
    ]


def _event(
    task: TaskRecord, kind: EventKind, now: float, data: Mapping[str, object], *, actor: str = ""
) -> Event:
    return Event(task.team_id, kind, task.id, now, data, actor or f"paddock/task {task.id}")
