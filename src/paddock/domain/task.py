"""The task: a prompt, an agent and a workspace; its states, its phases and its result.

pending ──> creating ──> running <──> waiting
                            │
                            └──> completing ──> completed      completing ──> running (next round)
running, waiting, completing ──> creating, when its sandbox was lost and another takes its place
any of them ──> failed, cancelled
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from paddock.domain.agent import WorkMode
from paddock.domain.app_verdict import AppHealth
from paddock.domain.budget import Spent
from paddock.domain.conversation import Conversation, Stage
from paddock.domain.desk.pace import Told
from paddock.domain.desk.saying import Claim, Progress
from paddock.domain.errors import Conflict
from paddock.domain.reason import Reason
from paddock.domain.standing import Standing
from paddock.domain.task_loss import Loss
from paddock.domain.task_review import Reviewed, agent_at
from paddock.domain.task_rounds import Checked, Round
from paddock.domain.task_wish import TaskWish
from paddock.domain.team import Principal, Role, Scope
from paddock.domain.vitals import Pulse, Vitals

TASK_PREFIX = "tsk"


class TaskState(StrEnum):
    """All but the first five are for good."""

    PENDING = "pending"
    """It waits for its turn, or for tasks that come before it."""
    CREATING = "creating"
    """Its workspace is being made."""
    RUNNING = "running"
    WAITING = "waiting"
    """For a person: an approval, an answer, more budget."""
    COMPLETING = "completing"
    """The agent is done; what it made is checked and brought out."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_S = TaskState
_FINAL = frozenset({_S.COMPLETED, _S.FAILED, _S.CANCELLED})
_ENDS = frozenset({_S.FAILED, _S.CANCELLED})

TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    _S.PENDING: frozenset({_S.CREATING}) | _ENDS,
    _S.CREATING: frozenset({_S.RUNNING}) | _ENDS,
    _S.RUNNING: frozenset({_S.WAITING, _S.COMPLETING, _S.CREATING}) | _ENDS,
    _S.WAITING: frozenset({_S.RUNNING, _S.CREATING}) | _ENDS,
    _S.COMPLETING: frozenset({_S.RUNNING, _S.COMPLETED, _S.CREATING}) | _ENDS,
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}


class Phase(StrEnum):
    """Where in its work a task is. In this order; each may be empty for a given task."""

    SANDBOX = "sandbox"
    SETUP = "setup"
    SYNC_IN = "sync_in"
    CHECKPOINT = "checkpoint"
    AGENT = "agent"
    BUILD_CHECK = "build_check"
    HEALTH_CHECK = "health_check"
    SYNC_OUT = "sync_out"
    COMMIT = "commit"
    PUSH = "push"
    PULL_REQUEST = "pull_request"


def transition(task_id: str, current: TaskState, target: TaskState) -> TaskState:
    """The target state, or Conflict that names both and what is possible instead."""
    allowed = TRANSITIONS[current]
    if target in allowed:
        return target
    possible = ", ".join(sorted(allowed)) or "nothing: it has ended"
    raise Conflict(
        f"task {task_id} is {current} and cannot become {target}",
        remediation=f"from {current} it can become: {possible}",
    )


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a task did to one file."""

    path: str
    kind: str
    """`added`, `changed`, `removed` or `renamed`."""
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a task."""

    message: str = ""
    """The agent's last words."""
    files: tuple[FileChange, ...] = ()
    checks: tuple[Checked, ...] = ()
    """Of the last round."""
    health: AppHealth | None = None
    """Of the last round; None where nobody looked."""
    rounds: tuple[Round, ...] = ()
    plan: str = ""
    reviews: tuple[Reviewed, ...] = ()
    reverted: tuple[str, ...] = ()
    """What the agent changed though it was not to, and what was put back."""
    commit: str = ""
    """What the agent made, as a commit off all branches; its parent is the checkpoint."""
    warnings: tuple[str, ...] = ()
    """Reasons not to trust the result: no evidence of work, or a skipped review."""
    unseen: str = ""
    """Why it is not known what the agent changed, or not all of it, where that is so."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Adoption:
    """That what an attempt made is brought to the sandbox that its group began with."""

    mark: str
    """What the sandbox calls what was there before; the same for whoever goes on with it."""
    sandbox_id: str
    directory: str = ""
    checkpoint: str = ""
    """The commit of what was there before."""
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """Who moves a task on. Whoever holds a lower fence than the record's writes nothing."""

    owner: str = ""
    fence: int = 0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task as it is kept: what was wished, which stays, and what became of it."""

    id: str
    team_id: str
    name: str
    wish: TaskWish
    created_at: float
    changed_at: float
    state: TaskState = TaskState.PENDING
    phase: Phase | None = None
    sandbox_id: str = ""
    """The workspace, once there is one."""
    provider: str = ""
    """Where its sandbox is, or will be; tasks are counted by it."""
    directory: str = ""
    """Where in the sandbox it works, once that is known."""
    batch: str = ""
    attempt_of: str = ""
    """Of several that try the same, the group; one of them is adopted."""
    is_adopted: bool = False
    adoption: Adoption | None = None
    """None also where there was nothing to bring it to."""
    is_extracted: bool = False
    """What it made was taken out of its sandbox, or given up."""
    conversation: Conversation = field(default_factory=Conversation)
    spent: Spent = field(default_factory=Spent)
    """As its agent tells it."""
    metered: Spent = field(default_factory=Spent)
    """As it was counted on the way to the model; see `used`."""
    extensions: int = 0
    """How often somebody has given it as much again as its budget was."""
    checkpoint: str = ""
    """The commit, off all branches, of what the workspace was before the agent began."""
    rounds: tuple[Round, ...] = ()
    """Those that are over."""
    plan: str = ""
    reviews: tuple[Reviewed, ...] = ()
    words: str = ""
    """The last ones of whoever did the work, while somebody else is at it."""
    reverted: tuple[str, ...] = ()
    """What its agent changed though it was not to; it was put back."""
    restarts: tuple[float, ...] = ()
    """When the agent was started again because it had died, stood still or lost its sandbox."""
    losses: tuple[Loss, ...] = ()
    """Of sandboxes that it worked in, each with what took its place."""
    diagnoses: tuple[float, ...] = ()
    """When it was looked into because it was stuck."""
    oddness: tuple[float, ...] = ()
    """The last readings of how odd it is."""
    weighed_at: float = 0.0
    forgiven_at: float = 0.0
    """What was odd before does not count any more."""
    watch: Mapping[str, Any] = field(default_factory=dict)
    """What the guardian remembers of it."""
    vitals: Vitals | None = None
    """Signs of life of its agent; None before the first."""
    waits_for: str = ""
    """The approval that a person has to answer before it goes on; empty where it was paused."""
    waits_rule: str = ""
    """What made it wait."""
    waiting_since: float | None = None
    standing: Standing | None = None
    """Where it cannot go on for now."""
    progress: Progress | None = None
    """How far its agent says that it is."""
    claims: tuple[Claim, ...] = ()
    """What its agent itself says of checks; none of it counts as one."""
    claims_told: Told = field(default_factory=Told)
    is_resumed: bool = False
    """Somebody wants it to go on; whoever moves it sees to it."""
    held_rank: int = 0
    """Of who has paused it: nobody below lets it go on. See `domain.authority`."""
    paused_by: str = ""
    """Who wants it to stand still; whoever moves it sees to it. Empty once it does."""
    reason: Reason | None = None
    detail: str = ""
    started_at: float | None = None
    deadline: float | None = None
    ended_at: float | None = None
    is_cancelled: bool = False
    """Somebody wants it to end; whoever moves it sees to it."""
    result: Result | None = None
    lease: Lease = field(default_factory=Lease)
    attempts: int = 0
    """How often it was taken up since it last came a step further. One that ends every worker is
    given up."""
    actor: str = ""
    role: Role = Role.MEMBER
    scopes: tuple[str, ...] = ()
    """Of who asked for it: it may do what they may."""
    version: int = 0

    @property
    def agent(self) -> str:
        return self.wish.agent

    @property
    def at_work(self) -> str:
        """The agent whose turn it is."""
        return agent_at(self.wish, self.conversation.stage)

    @property
    def heartbeat_at(self) -> float | None:
        """When the sandbox last said that the agent is at work."""
        return self.vitals.beat_at if self.vitals is not None else None

    @property
    def pulse(self) -> Pulse | None:
        """Whether it still does; None where no agent is at work."""
        if self.vitals is None or self.state is not TaskState.RUNNING:
            return None
        return self.vitals.pulse

    @property
    def used(self) -> Spent:
        """What was counted outside is exact, but an agent may have ways that lead past it: of each,
        the larger counts."""
        return self.spent.or_more(self.metered)

    @property
    def holds_work(self) -> bool:
        """What it made is in its sandbox and nowhere else, or it may be."""
        if self.is_extracted or not self.conversation.run:
            return False
        result = self.result or Result()
        return bool(result.files or result.unseen) or not result.commit

    @property
    def went_back(self) -> Loss | None:
        """The loss after which it works in what was kept of its workspace; None where it has lost
        none, or has begun from the beginning again."""
        last = self.losses[-1] if self.losses else None
        return last if last is not None and last.snapshot_id else None

    @property
    def where_adopted(self) -> "TaskRecord":
        """As if it had worked where what it made was brought; itself where that is nowhere."""
        at = self.adoption
        if at is None or not at.checkpoint:
            return self
        directory, checkpoint = at.directory, at.checkpoint
        return replace(self, sandbox_id=at.sandbox_id, directory=directory, checkpoint=checkpoint)

    @property
    def may_run_again(self) -> bool:
        """What its agent made is looked at, and another run of it may follow."""
        if self.state is not TaskState.COMPLETING:
            return False
        is_noted = bool(self.rounds) and self.rounds[-1].run == self.conversation.run
        number = len(self.rounds) + (0 if is_noted else 1)
        review = self.wish.review
        is_reviewed = review is not None and review.rounds > 0
        is_plan = self.conversation.stage is Stage.PLAN
        is_asked = self.wish.mode is WorkMode.VALIDATE and not self.reviews
        return is_plan or is_reviewed or is_asked or number < self.wish.rounds.most

    @property
    def principal(self) -> Principal:
        """Whom it acts for."""
        scopes = frozenset(Scope(each) for each in self.scopes)
        return Principal(self.team_id, self.actor, self.role, scopes)


def moved(
    task: TaskRecord,
    target: TaskState,
    now: float,
    *,
    reason: Reason | None = None,
    detail: str = "",
) -> TaskRecord:
    """The task in its next state, or Conflict; its clock follows."""
    transition(task.id, task.state, target)
    begins = target is TaskState.CREATING and task.started_at is None
    return replace(
        task,
        state=target,
        reason=reason,
        detail=detail,
        changed_at=now,
        started_at=now if begins else task.started_at,
        deadline=now + task.wish.timeout_s if begins else task.deadline,
        ended_at=now if target.is_final else None,
    )


def with_restarted_timeout(task: TaskRecord, now: float) -> TaskRecord:
    """Restart the timeout at `now` if the agent has not run yet: building a template or installing
    an agent takes none of a task's time."""
    if task.deadline is None or task.conversation.run:
        return task
    return replace(task, deadline=now + task.wish.timeout_s)


def check_after(task_id: str, after: Mapping[str, TaskState]) -> bool:
    """Whether it may begin. Conflict when one that comes before it can never be completed."""
    for other, state in after.items():
        if state in _ENDS:
            raise Conflict(
                f"task {task_id} cannot begin: task {other}, which comes before it, is {state}",
                remediation="retry that one, or make this one again without it",
            )
    return all(state is TaskState.COMPLETED for state in after.values())
