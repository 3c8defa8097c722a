"""`/v1/tasks`: what agents are to do, and what comes of it."""

from typing import Annotated

from fastapi import APIRouter, Query

from paddock.domain.task import TaskState
from paddock.interfaces.api.context import Given, Key, Who
from paddock.interfaces.api.lean import Lean
from paddock.interfaces.api.paging import MessagePage, TaskPage
from paddock.interfaces.api.schemas.common import LabelFilter, ListOf, labels_of, paged
from paddock.interfaces.api.schemas.task_wishes import (
    CreateAttempts,
    CreateTask,
    CreateTasks,
    SendMessage,
)
from paddock.interfaces.api.schemas.tasks import (
    AttemptsShape,
    MessageShape,
    RehearsalShape,
    TaskShape,
    TasksShape,
    TaskSummary,
    show,
    show_attempts,
    show_message,
    show_rehearsal,
    summarize,
)
from paddock.ports.tasks import TaskFilter

router = APIRouter(prefix="/v1", tags=["tasks"], route_class=Lean)


@router.post("/tasks", status_code=201)
async def create(given: Given, who: Who, key: Key, wish: CreateTask) -> TaskShape:
    """Give a task. It is kept when this answers, and waits for its turn; `/events` tells how it
    goes. What can be known to be wrong is refused before anything is made."""
    return show(await given.tasks.create(who, wish.submission(), key))


@router.post("/tasks/check")
async def rehearse(given: Given, who: Who, wish: CreateTask) -> RehearsalShape:
    """Say what a task would do, without making anything. What would be refused is refused: an
    agent, a credential, a check, a place to work in."""
    return show_rehearsal(await given.tasks.rehearse(who, wish.submission()))


@router.get("/tasks")
async def list_tasks(
    given: Given,
    who: Who,
    *,
    page: TaskPage,
    state: Annotated[list[TaskState] | None, Query()] = None,
    agent: Annotated[str, Query(max_length=64)] = "",
    sandbox: Annotated[str, Query(max_length=64, description="at work in the one of this id")] = "",
    batch: Annotated[str, Query(max_length=64)] = "",
    attempt_of: Annotated[str, Query(max_length=64)] = "",
    label: LabelFilter = None,
) -> ListOf[TaskSummary]:
    """The team's tasks, newest first."""
    labels = labels_of(label)
    wanted = TaskFilter(frozenset(state or ()), agent, sandbox, batch, attempt_of, labels)
    found = await given.tasks.list(who, wanted, page)
    return paged(found, page.limit - 1, summarize, lambda task: task.id)


@router.post("/tasks/batch", status_code=201)
async def create_batch(given: Given, who: Who, key: Key, wish: CreateTasks) -> TasksShape:
    """Give several tasks at once: all of them, or none. They share a `batch` to be listed by."""
    made = await given.tasks.create_all(who, wish.submissions(key), key)
    return TasksShape(batch=made[0].batch, tasks=[summarize(task) for task in made])


@router.get("/tasks/{task}")
async def get(given: Given, who: Who, task: str) -> TaskShape:
    """One task, with its whole prompt and result."""
    return show(await given.tasks.get(who, task))


@router.post("/tasks/{task}/cancel", status_code=202)
async def cancel(given: Given, who: Who, task: str) -> TaskShape:
    """Have it end: its agent is asked to, then made to. One that is over stays as it is."""
    return show(await given.tasks.cancel(who, task))


@router.post("/tasks/{task}/retry", status_code=201)
async def retry(given: Given, who: Who, key: Key, task: str) -> TaskShape:
    """Give the same task once more, as a new one. Refused while the first is not over."""
    return show(await given.tasks.retry(who, task, key))


@router.post("/tasks/{task}/pause", status_code=202)
async def pause(given: Given, who: Who, task: str) -> TaskShape:
    """Have its agent stand still, and its clock with it, until it is resumed. One that has not
    begun does not begin; one that is over is refused."""
    return show(await given.tasks.pause(who, task))


@router.post("/tasks/{task}/resume", status_code=202)
async def resume(given: Given, who: Who, task: str) -> TaskShape:
    """Have one go on that somebody or its guardian has paused. What waits for an answer is answered
    instead: `/v1/approvals`."""
    return show(await given.tasks.resume(who, task))


@router.post("/tasks/{task}/messages", status_code=201)
async def send(given: Given, who: Who, *, key: Key, task: str, wanted: SendMessage) -> MessageShape:
    """Tell its agent something while it works. The message says how far it has come; a mode that
    the agent lacks is refused."""
    sent = await given.tasks.send(who, task, wanted.text, wanted.mode, ttl_s=wanted.ttl_s, key=key)
    return show_message(sent)


@router.get("/tasks/{task}/messages")
async def list_messages(
    given: Given, who: Who, *, task: str, page: MessagePage
) -> ListOf[MessageShape]:
    """What its agent was told, in the order in which it was sent."""
    found = await given.tasks.messages(who, task, page)
    return paged(found, page.limit - 1, show_message, lambda message: message.id)


@router.get("/tasks/{task}/messages/{message}")
async def get_message(given: Given, who: Who, task: str, message: str) -> MessageShape:
    """One message, and its receipt."""
    return show_message(await given.tasks.message(who, task, message))


@router.post("/tasks/{task}/revert")
async def revert(given: Given, who: Who, task: str) -> TaskShape:
    """Put the workspace back to what it was before the agent began. What is there now is kept as a
    commit off all branches, which the event `task.reverted` names. Of an attempt that was adopted,
    it is the workspace that it was brought to, and the adoption is undone."""
    return show(await given.tasks.revert(who, task))


@router.post("/tasks/{task}/adopt")
async def adopt(given: Given, who: Who, task: str) -> TaskShape:
    """Of several attempts, take this one: what it made is brought to the sandbox that they began
    with. The others stay as they are."""
    return show(await given.attempts.adopt(who, task))


@router.post("/attempts", status_code=201)
async def begin_attempts(given: Given, who: Who, key: Key, wish: CreateAttempts) -> AttemptsShape:
    """Have the same done several times, by different agents or by one, each in a workspace of its
    own: in forks of the sandbox, or in sandboxes of the same template."""
    variants = [each.read() for each in wish.variants]
    return show_attempts(await given.attempts.begin(who, wish.task.submission(), variants, key))


@router.get("/attempts/{group}")
async def get_attempts(given: Given, who: Who, group: str) -> AttemptsShape:
    """Attempts side by side: their states, checks, changes and costs."""
    return show_attempts(await given.attempts.of(who, group))
