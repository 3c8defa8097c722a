"""`/v1/tasks`, looking after them: what is over is forgotten, what is stuck is looked into."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from paddock.domain.errors import InvalidRequest
from paddock.domain.task import TaskState
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.paging import TaskPage
from paddock.interfaces.api.schemas.common import LabelFilter, labels_of
from paddock.interfaces.api.schemas.task_care import (
    DiagnosisShape,
    SweptShape,
    show_diagnosis,
    show_swept,
)
from paddock.ports.tasks import TaskFilter
from paddock.services.task_cleaning import Terms

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])
Force = Annotated[bool, Query(description="also what they made that is nowhere else")]
WithSandbox = Annotated[bool, Query(description="the sandboxes too that were made for them")]


@router.delete("")
async def delete_tasks(
    given: Given,
    who: Who,
    *,
    page: TaskPage,
    state: Annotated[list[TaskState] | None, Query()] = None,
    before: Annotated[datetime | None, Query(description="that ended before")] = None,
    label: LabelFilter = None,
    agent: Annotated[str, Query(max_length=64)] = "",
    sandbox: Annotated[str, Query(max_length=64, description="that worked in this one")] = "",
    batch: Annotated[str, Query(max_length=64)] = "",
    force: Force = False,
    with_sandbox: WithSandbox = False,
    dry_run: Annotated[bool, Query(description="only say what would go")] = False,
) -> SweptShape:
    """Forget tasks that are over, page by page, with their messages and what their agents wrote.
    One whose work is nowhere but in its sandbox is kept and named, unless forced. Their events stay
    for as long as events do, and the audit log for good."""
    wanted = TaskFilter(
        frozenset(state or ()),
        agent,
        sandbox,
        batch,
        labels=labels_of(label),
        ended_before=_moment(before),
    )
    terms = Terms(force=force, sandbox=with_sandbox, dry_run=dry_run)
    return show_swept(await given.care.cleaning.delete_all(who, wanted, page, terms))


@router.delete("/{task}")
async def delete_task(
    given: Given, who: Who, *, task: str, force: Force = False, with_sandbox: WithSandbox = False
) -> SweptShape:
    """Forget one that is over, with its messages and what its agent wrote. Refused while what it
    made is nowhere but in its sandbox, unless forced."""
    terms = Terms(force=force, sandbox=with_sandbox)
    return show_swept(await given.care.cleaning.delete(who, task, terms))


@router.post("/{task}/diagnosis")
async def diagnose(given: Given, who: Who, task: str) -> DiagnosisShape:
    """Find out what a task is at: what runs in its sandbox, what it reaches and was refused,
    memory and disk, its agent's last words. It changes and wakes nothing; the event
    `task.diagnosis` has the same, also of those that were made because it was stuck."""
    return show_diagnosis(await given.care.diagnosis.ask(who, task))


def _moment(given: datetime | None) -> float | None:
    if given is not None and given.tzinfo is None:
        raise InvalidRequest(
            f"before={given.isoformat()} has no time zone", remediation="end it with Z or +02:00"
        )
    return given.timestamp() if given else None
