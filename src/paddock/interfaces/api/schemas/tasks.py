"""Tasks as the API shows them. Values of their environment are never among it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import Field

from paddock.domain.agent import WorkMode
from paddock.domain.budget import Spent
from paddock.domain.conversation import Stage
from paddock.domain.desk import Progress
from paddock.domain.message import Message, MessageState, Mode
from paddock.domain.reason import Reason
from paddock.domain.task import Phase, TaskRecord, TaskState
from paddock.domain.task_plan import Rehearsal
from paddock.domain.task_wish import TaskWish
from paddock.domain.vitals import Pulse
from paddock.interfaces.api.schemas.common import Shape, at, moment
from paddock.interfaces.api.schemas.task_health import HealthWishShape, show_health_wish
from paddock.interfaces.api.schemas.task_losses import LossShape, show_loss
from paddock.interfaces.api.schemas.task_results import (
    ResultShape,
    ResultSummary,
    in_short,
    show_result,
)
from paddock.interfaces.api.schemas.task_wishes import (
    BudgetShape,
    CheckShape,
    ReviewShape,
    RoundsShape,
)

_SHOWN = 200


class SpentShape(Shape):
    """What was used so far."""

    input_tokens: int
    cached_tokens: int = Field(description="of the input, what the model API had cached")
    output_tokens: int
    reasoning_tokens: int = Field(description="of the output, what the model thought")
    cost_usd: float
    turns: int = Field(description="answers of the model, each with the tools that it called")


class ProgressShape(Shape):
    """How far an agent says that it is."""

    text: str
    percent: float | None
    at: datetime


class _Known(Shape):
    id: str
    name: str
    state: TaskState
    phase: Phase | None = Field(description="where in its work it is")
    reason: Reason | None
    detail: str
    agent: str
    model: str | None
    mode: WorkMode
    sandbox_id: str | None = Field(description="the workspace, once there is one")
    provider: str
    labels: dict[str, str]
    batch: str | None
    attempt_of: str | None
    adopted: bool
    follows: str | None
    waits_for: str | None = Field(description="the approval that has to be answered first")
    cancelling: bool = Field(description="somebody wants it to end")
    pausing: bool = Field(description="somebody wants it to stand still, and it does not yet")
    spent: SpentShape
    created_at: datetime
    changed_at: datetime
    started_at: datetime | None
    deadline: datetime | None
    ended_at: datetime | None


class TaskSummary(_Known):
    """A task in a list."""

    prompt: str = Field(description=f"its first {_SHOWN} characters")
    result: ResultSummary | None


class WorkspaceShape(Shape):
    """Where it was asked to work."""

    sandbox: str | None
    fork: str | None
    snapshot: str | None
    template: str | None
    app: str | None


class ToolNamed(Shape):
    """An MCP server that the agent may use."""

    name: str
    command: list[str]
    url: str | None
    env_names: list[str]


class TaskLinks(Shape):
    """Where the rest of it is."""

    events: str
    messages: str
    output: str
    diff: str
    sandbox: str | None


class TaskShape(_Known):
    """A task."""

    prompt: str = Field(description="as it was given, with the names of variables in it")
    variables: dict[str, str] | None = Field(description="what stands for them; null is none")
    workspace: WorkspaceShape
    directory: str | None = Field(description="where in the sandbox it works, once that is known")
    env_names: list[str]
    given_files: list[str]
    checks: list[CheckShape]
    rounds: RoundsShape
    review: ReviewShape | None
    health: HealthWishShape | None = Field(description="the app that is looked at in the end")
    stage: Stage = Field(description="whose turn it is: who plans, works or reviews")
    tools: list[ToolNamed]
    options: dict[str, Any]
    budget: BudgetShape
    timeout_s: float
    after: list[str]
    scope: list[str]
    guardian: dict[str, str]
    session: str | None = Field(description="what the agent can be resumed by")
    runs: int = Field(description="of the agent, with restarts and messages that began another")
    restarts: list[datetime] = Field(
        description="when the agent had died, stood still or lost its sandbox"
    )
    losses: list[LossShape] = Field(description="of sandboxes; another took the place of each")
    heartbeat_at: datetime | None = Field(description="when the guest last told of the agent")
    pulse: Pulse | None = Field(
        description="whether the guest tells of the agent when it is asked; null where none is at "
        "work"
    )
    checkpoint: str | None = Field(description="the commit of what was there before it began")
    created_by: str
    progress: ProgressShape | None = Field(description="what the agent last said of it")
    result: ResultShape | None
    links: TaskLinks


class RehearsalShape(Shape):
    """What a task would do. Nothing was made."""

    agent: str
    model: str | None
    provider: str
    sandbox_id: str | None = Field(description="the workspace, where it is there already")
    steps: list[str] = Field(description="in words, in the order in which they would be done")


class TasksShape(Shape):
    """Tasks that were made together."""

    batch: str
    tasks: list[TaskSummary]


class AttemptsShape(Shape):
    """Several that try the same, side by side, in the order in which they were begun."""

    id: str
    prompt: str
    attempts: list[TaskSummary]


class MessageShape(Shape):
    """A message to an agent, and its receipt."""

    id: str
    task_id: str
    text: str
    mode: Mode
    state: MessageState
    actor: str
    queued_at: datetime
    delivered_at: datetime | None = Field(description="when the agent's program had it")
    seen_at: datetime | None = Field(description="when a request to the model held it")
    expires_at: datetime | None = Field(description="until when it may be delivered")
    expected_at: datetime | None = Field(
        description="when the agent was likely to read it, as things were when it was sent; null "
        "where nothing says so: it is not at work, or in a step or turn of unknown length"
    )
    detail: str


def show(task: TaskRecord) -> TaskShape:
    wish, talk = task.wish, task.conversation
    return TaskShape(
        **_known(task),
        prompt=wish.prompt,
        variables=dict(wish.variables) if wish.variables is not None else None,
        workspace=_workspace(wish),
        directory=task.directory or None,
        env_names=sorted(wish.env),
        given_files=[each.path for each in wish.files],
        checks=_checks(wish),
        rounds=RoundsShape(most=wish.rounds.most, errors=wish.rounds.errors, tell=wish.rounds.tell),
        tools=_tools(wish),
        options=dict(wish.options),
        budget=BudgetShape(
            tokens=wish.budget.tokens, cost_usd=wish.budget.cost_usd, turns=wish.budget.turns
        ),
        timeout_s=wish.timeout_s,
        after=list(wish.after),
        scope=list(wish.scope),
        guardian=dict(wish.guardian),
        review=_review(wish),
        health=show_health_wish(wish.health) if wish.health else None,
        stage=talk.stage,
        session=talk.own_session or None,
        runs=talk.run,
        restarts=[at(each) for each in task.restarts],
        losses=[show_loss(each) for each in task.losses],
        heartbeat_at=moment(task.heartbeat_at),
        pulse=task.pulse,
        checkpoint=task.checkpoint or None,
        created_by=task.actor,
        progress=_progress(task.progress) if task.progress else None,
        result=show_result(task.result, task.claims) if task.result else None,
        links=_links(task),
    )


def summarize(task: TaskRecord) -> TaskSummary:
    return TaskSummary(
        **_known(task),
        prompt=task.wish.prompt[:_SHOWN],
        result=in_short(task.result) if task.result else None,
    )


def show_attempts(group: Sequence[TaskRecord]) -> AttemptsShape:
    first = group[0]
    return AttemptsShape(
        id=first.attempt_of,
        prompt=first.wish.prompt,
        attempts=[summarize(task) for task in group],
    )


def show_rehearsal(rehearsed: Rehearsal) -> RehearsalShape:
    task = rehearsed.task
    return RehearsalShape(
        agent=task.agent,
        model=task.wish.model or None,
        provider=task.provider,
        sandbox_id=task.sandbox_id or None,
        steps=list(rehearsed.steps),
    )


def show_message(message: Message) -> MessageShape:
    return MessageShape(
        id=message.id,
        task_id=message.task_id,
        text=message.text,
        mode=message.mode,
        state=message.state,
        actor=message.actor,
        queued_at=at(message.queued_at),
        delivered_at=moment(message.delivered_at),
        seen_at=moment(message.seen_at),
        expires_at=moment(message.expires_at),
        expected_at=moment(message.expected_at),
        detail=message.detail,
    )


def _known(task: TaskRecord) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": task.name,
        "state": task.state,
        "phase": task.phase,
        "reason": task.reason,
        "detail": task.detail,
        "agent": task.agent,
        "model": task.wish.model or None,
        "mode": task.wish.mode,
        "sandbox_id": task.sandbox_id or None,
        "provider": task.provider,
        "labels": dict(task.wish.labels),
        "batch": task.batch or None,
        "attempt_of": task.attempt_of or None,
        "adopted": task.is_adopted,
        "follows": task.wish.follows or None,
        "waits_for": task.waits_for or None,
        "cancelling": task.is_cancelled and not task.state.is_final,
        "pausing": bool(task.paused_by) and not task.state.is_final,
        "spent": _spent(task.used),
        "created_at": at(task.created_at),
        "changed_at": at(task.changed_at),
        "started_at": moment(task.started_at),
        "deadline": moment(task.deadline),
        "ended_at": moment(task.ended_at),
    }


def _spent(spent: Spent) -> SpentShape:
    return SpentShape(
        input_tokens=spent.input_tokens,
        cached_tokens=spent.cached_tokens,
        output_tokens=spent.output_tokens,
        reasoning_tokens=spent.reasoning_tokens,
        cost_usd=round(spent.cost_usd, 6),
        turns=spent.turns,
    )


def _workspace(wish: TaskWish) -> WorkspaceShape:
    place = wish.workspace
    return WorkspaceShape(
        sandbox=place.sandbox or None,
        fork=place.fork or None,
        snapshot=place.snapshot or None,
        template=place.template or None,
        app=place.app or None,
    )


def _review(wish: TaskWish) -> ReviewShape | None:
    if (review := wish.review) is None:
        return None
    return ReviewShape(
        agent=review.agent,
        model=review.model,
        rounds=review.rounds,
        plan=review.plan,
        min_lines=review.min_lines,
    )


def _tools(wish: TaskWish) -> list[ToolNamed]:
    return [
        ToolNamed(
            name=each.name,
            command=list(each.command),
            url=each.url or None,
            env_names=sorted(each.env),
        )
        for each in wish.tools
    ]


def _checks(wish: TaskWish) -> list[CheckShape]:
    return [
        CheckShape(
            name=each.name,
            cmd=list(each.cmd),
            timeout_s=each.timeout_s,
            description=each.description,
            when=each.when,
        )
        for each in wish.checks
    ]


def _progress(said: Progress) -> ProgressShape:
    return ProgressShape(text=said.text, percent=said.percent, at=at(said.at))


def _links(task: TaskRecord) -> TaskLinks:
    here = f"/v1/tasks/{task.id}"
    return TaskLinks(
        events=f"{here}/events",
        messages=f"{here}/messages",
        output=f"{here}/output",
        diff=f"{here}/diff",
        sandbox=f"/v1/sandboxes/{task.sandbox_id}" if task.sandbox_id else None,
    )
