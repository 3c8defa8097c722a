"""What is known of tasks: plain frozen data."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

_ENDS = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Spent:
    """What a task has used so far."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    """Of the output, what the model thought."""
    cost_usd: float
    turns: int

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Checked:
    """How a check ended."""

    name: str
    state: str
    """`passed`, `failed`, or `unknown`: it was not run, or gave no answer."""
    exit_code: int
    """124 at its time limit, -1 where it was not run."""
    seconds: float
    output: str = ""
    """The end of what it said; in lists it is left out."""
    why: str | None = None
    """Why nothing is known."""

    @property
    def ok(self) -> bool:
        return self.state == "passed"


@dataclass(frozen=True, slots=True)
class Round:
    """One try of the agent, and what the checks said of it."""

    number: int
    run: int
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    unknown: tuple[str, ...]
    error: str | None
    """Why the agent broke off, where it did."""
    fault: str | None
    """Whose it was that it did not pass: `code`, or what of the surroundings."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a reviewer does not like."""

    severity: str
    """`major`, `minor` or `nit`."""
    text: str


@dataclass(frozen=True, slots=True)
class Reviewed:
    """One review."""

    number: int
    run: int
    verdict: str
    """`approve`, `revise`, or `unknown`: none that can be read."""
    approved: bool
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a task did to one file."""

    path: str
    kind: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an agent says that it is."""

    text: str
    percent: float | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an agent itself says of a check. It decides nothing."""

    name: str
    passed: bool
    detail: str
    at: datetime


@dataclass(frozen=True, slots=True)
class PreviewSeen:
    """What the port of an app answered in the end."""

    port: int
    path: str
    status: int | None
    """None where nobody answered."""
    error: str | None


@dataclass(frozen=True, slots=True)
class Worker:
    """A supervised process of an app in the end."""

    name: str
    state: str
    """`running`, `backoff`, `gave_up`, `exited`, `stopped`, or `absent`: there is none."""
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class AppHealth:
    """What was found of the app that an agent worked at."""

    healthy: bool
    build: str | None
    """`passed`, `failed` or `unknown`; None where no check is called the build."""
    preview_ok: bool | None
    """None, and never False, of an app without a web part."""
    preview: PreviewSeen | None
    workers: tuple[Worker, ...]
    restarted: tuple[str, ...]
    """Processes that were started anew first."""
    changed: tuple[str, ...]
    """The files that this was for."""
    errors: tuple[str, ...]
    """All that is not well, in words."""
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What came of a task."""

    message: str
    files: tuple[FileChange, ...]
    checks: tuple[Checked, ...]
    """Of the last round."""
    health: AppHealth | None
    """Of the last round; None where nobody looked."""
    rounds: tuple[Round, ...]
    plan: str | None
    reviews: tuple[Reviewed, ...]
    reverted: tuple[str, ...]
    """What it changed though it was not to; it was put back."""
    verdicts: tuple[Verdict, ...]
    commit: str | None
    unseen: str | None
    """Why it is not known what was changed, where it is not."""
    warnings: tuple[str, ...]
    """Reasons not to trust the result: no evidence of work, or a skipped review."""
    seconds: float


@dataclass(frozen=True, slots=True)
class ResultSummary:
    """The same in numbers."""

    message: str
    files: int
    added: int
    removed: int
    checks: tuple[Checked, ...]
    healthy: bool | None
    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    id: str
    name: str
    state: str
    phase: str | None
    reason: str | None
    detail: str
    agent: str
    model: str | None
    mode: str
    prompt: str
    sandbox_id: str | None
    provider: str
    labels: dict[str, str]
    batch: str | None
    attempt_of: str | None
    adopted: bool
    follows: str | None
    waits_for: str | None
    cancelling: bool
    pausing: bool
    spent: Spent
    created_at: datetime
    changed_at: datetime
    started_at: datetime | None
    deadline: datetime | None
    ended_at: datetime | None

    @property
    def is_over(self) -> bool:
        return self.state in _ENDS

    @property
    def ok(self) -> bool:
        return self.state == "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary(_Known):
    """A task in a list: with the beginning of its prompt."""

    result: ResultSummary | None


@dataclass(frozen=True, slots=True)
class Loss:
    """A sandbox that was lost under a task, and what the next one was made of."""

    sandbox_id: str
    at: datetime
    snapshot_id: str | None
    """None is what the first was made of."""
    as_of: datetime | None
    """When that was taken: what was done later is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo(_Known):
    """A task as the server sees it."""

    variables: dict[str, str] | None
    """What stands for names in the prompt, where it has any."""
    workspace: dict[str, str | None]
    directory: str | None
    env_names: tuple[str, ...]
    given_files: tuple[str, ...]
    checks: tuple[dict[str, Any], ...]
    rounds: dict[str, Any]
    review: dict[str, Any] | None
    health: dict[str, Any] | None
    stage: str
    tools: tuple[dict[str, Any], ...]
    options: dict[str, Any]
    budget: dict[str, float | None]
    timeout_s: float
    after: tuple[str, ...]
    scope: tuple[str, ...]
    guardian: dict[str, str]
    session: str | None
    runs: int
    restarts: tuple[datetime, ...]
    losses: tuple[Loss, ...]
    """Of sandboxes that it worked in; another took the place of each."""
    heartbeat_at: datetime | None
    pulse: str | None
    checkpoint: str | None
    created_by: str
    progress: Progress | None
    result: TaskResult | None
    links: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a task would do. Nothing was made."""

    agent: str
    model: str | None
    provider: str
    sandbox_id: str | None
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """Tasks that were made together."""

    batch: str
    tasks: tuple[TaskSummary, ...]


@dataclass(frozen=True, slots=True)
class AttemptsInfo:
    """Several that try the same, side by side."""

    id: str
    prompt: str
    attempts: tuple[TaskSummary, ...]

    @property
    def are_over(self) -> bool:
        return all(each.is_over for each in self.attempts)


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """A message to an agent, and its receipt."""

    id: str
    task_id: str
    text: str
    mode: str
    state: str
    """`queued`, `delivered` to the agent's program, `seen` by its model, `undelivered` when its
    task was over before, or `expired` when its time was."""
    actor: str
    queued_at: datetime
    delivered_at: datetime | None
    seen_at: datetime | None
    expires_at: datetime | None
    expected_at: datetime | None
    """When the agent was likely to read it, as things were when it was sent; None is unknown."""
    detail: str


@dataclass(frozen=True, slots=True)
class Diff:
    """What a task changed, as `git apply` takes it."""

    text: bytes
    is_cut: bool
    """There is more than what is here."""

    def __str__(self) -> str:
        return self.text.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class KeptInfo:
    """A task that stays, and why."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class SweptInfo:
    """What was forgotten, or would be."""

    tasks: tuple[str, ...] = ()
    sandboxes: tuple[str, ...] = ()
    kept: tuple[KeptInfo, ...] = ()

    def plus(self, more: "SweptInfo") -> "SweptInfo":
        return SweptInfo(
            self.tasks + more.tasks, self.sandboxes + more.sandboxes, self.kept + more.kept
        )


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One that runs in a task's sandbox."""

    pid: int
    parent: int
    state: str
    cpu_s: float
    waits_in: str
    command: str


@dataclass(frozen=True, slots=True)
class DiagnosisInfo:
    """What was found in a task's sandbox."""

    at: datetime
    why: str
    processes: tuple[ProcessInfo, ...]
    connections: tuple[str, ...]
    refused: tuple[str, ...]
    memory_mib: dict[str, float]
    disks: tuple[str, ...]
    lines: tuple[str, ...]
    questions: tuple[str, ...]
    missing: tuple[str, ...]
