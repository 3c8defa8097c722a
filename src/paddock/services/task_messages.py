"""Messages into a running agent: sent by people, and how far each has come."""

from collections.abc import Sequence

from paddock.domain.delivery import expected_at
from paddock.domain.errors import Conflict, InvalidRequest, NotFound
from paddock.domain.ids import new_id
from paddock.domain.message import (
    MESSAGE_PREFIX,
    MOST_QUEUED,
    Message,
    Mode,
    check_text,
    check_ttl,
)
from paddock.domain.sandbox import SandboxState
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Store, Transaction
from paddock.services import task_mail
from paddock.services.once import Once, Repeatable
from paddock.services.task_events import message_event
from paddock.services.task_pause import entry, found
from paddock.services.task_setting import AgentSettings

_FIRST = Page(1000)
_LISTENS = (TaskState.PENDING, TaskState.CREATING, TaskState.RUNNING, TaskState.WAITING)


class TaskMessages:
    """What people say to agents."""

    _store: Store
    _clock: Clock
    _once: Once
    _settings: AgentSettings

    async def send(
        self,
        principal: Principal,
        task_id: str,
        text: str,
        mode: Mode,
        *,
        ttl_s: float | None = None,
        key: str = "",
    ) -> Message:
        """To its agent, which has it as soon as the mode says, or within `ttl_s` or never; the
        receipt tells how far it is."""
        principal.require(Scope.TASKS_WRITE)
        check_text(text)
        check_ttl(ttl_s)

        def write(tx: Transaction) -> tuple[str, Message]:
            now = self._clock.wall()
            task = found(tx, principal.team_id, task_id)
            self._check_hears(task, mode)
            _check_room(tx, task, now)
            sent = Message(
                id=new_id(MESSAGE_PREFIX),
                team_id=task.team_id,
                task_id=task.id,
                text=text,
                mode=mode,
                actor=principal.actor,
                queued_at=now,
                expires_at=None if ttl_s is None else now + ttl_s,
                expected_at=_expected_at(tx, task, mode, now),
            )
            tx.messages.add(sent)
            tx.events.append([message_event(task.id, sent, now)])
            detail = {"message": sent.id, "mode": mode}
            tx.audit.append([entry(principal, task, "task.message", now, **detail)])
            return sent.id, sent

        asked = (text, mode) if ttl_s is None else (text, mode, ttl_s)
        request = Repeatable(principal, key, f"message {task_id}", asked)
        return await self._once.write(request, write, Message, stands=lambda _tx, _sent: True)

    async def messages(
        self, principal: Principal, task_id: str, page: Page = _FIRST
    ) -> Sequence[Message]:
        principal.require(Scope.TASKS_READ)
        after, limit = page.after, page.limit

        def read(tx: Transaction) -> Sequence[Message]:
            task = found(tx, principal.team_id, task_id)
            return tx.messages.of(task.id, after=after, limit=limit)

        return await self._store.read(read)

    async def message(self, principal: Principal, task_id: str, message_id: str) -> Message:
        principal.require(Scope.TASKS_READ)

        def read(tx: Transaction) -> Message | None:
            task = found(tx, principal.team_id, task_id)
            message = tx.messages.get(task.team_id, message_id)
            return message if message is not None and message.task_id == task.id else None

        if (message := await self._store.read(read)) is not None:
            return message
        raise NotFound(
            f"task {task_id[:80]} has no message {message_id[:80]}",
            remediation="`paddock task messages` shows those there are",
        )

    def _check_hears(self, task: TaskRecord, mode: Mode) -> None:
        traits = self._settings.agent(task.at_work).traits
        if mode not in traits.modes:
            known = ", ".join(sorted(traits.modes)) or "none: it takes no messages while it works"
            raise InvalidRequest(
                f"{task.at_work} cannot be sent a message in the mode {mode}",
                remediation=f"modes that it has: {known}",
            )
        if not (task.state in _LISTENS or task.may_run_again) or task.is_cancelled:
            raise Conflict(
                f"task {task.id} is {task.state}, and its agent hears nothing more",
                remediation="send a follow-up: a task that follows this one",
            )


def _check_room(tx: Transaction, task: TaskRecord, now: float) -> None:
    if len(task_mail.waiting(tx, task.id, now)) >= MOST_QUEUED:
        raise Conflict(
            f"{MOST_QUEUED} messages wait for the agent of task {task.id}",
            remediation="wait until it has read some of them",
        )


def _expected_at(tx: Transaction, task: TaskRecord, mode: Mode, now: float) -> float | None:
    sandbox = tx.sandboxes.get(task.team_id, task.sandbox_id) if task.sandbox_id else None
    if sandbox is None or sandbox.state is not SandboxState.RUNNING:
        return None
    return expected_at(task, mode, now)
