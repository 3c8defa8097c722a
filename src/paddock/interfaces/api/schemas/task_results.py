"""What came of tasks, as the API shows it."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from paddock.domain.desk import Claim
from paddock.domain.task import Result
from paddock.domain.task_faults import Fault
from paddock.domain.task_review import Opinion, Reviewed, Severity
from paddock.domain.task_rounds import CheckState, Round
from paddock.interfaces.api.schemas.common import Shape, at
from paddock.interfaces.api.schemas.task_health import HealthShape, show_health

_SHOWN = 200


class OutcomeShape(Shape):
    """How a check ended, in short."""

    name: str
    state: CheckState = Field(description="`unknown`: not run, or no answer; that is no pass")
    exit_code: int = Field(description="124 at its time limit, -1 where it was not run")
    seconds: float


class CheckedShape(OutcomeShape):
    """How a check ended."""

    output: str = Field(description="the end of what it said")
    why: str | None = Field(description="why nothing is known")


class RoundShape(Shape):
    """One try of the agent, and what the checks said of it."""

    number: int
    run: int = Field(description="the agent's, that it ended with")
    passed: list[str] = Field(description="names of checks")
    failed: list[str]
    unknown: list[str]
    error: str | None = Field(description="why the agent broke off, where it did")
    fault: Fault | None = Field(description="whose it was that it did not pass")


class FindingShape(Shape):
    """Something that a reviewer does not like."""

    severity: Severity
    text: str


class ReviewedShape(Shape):
    """One review."""

    number: int
    run: int = Field(description="the reviewer's")
    verdict: Opinion = Field(description="`unknown` is none that can be read, and no approval")
    approved: bool = Field(description="only nits are left")
    findings: list[FindingShape]


class FileChangeShape(Shape):
    """What was done to one file."""

    path: str
    kind: str = Field(description="`added`, `changed`, `removed` or `renamed`")
    added: int = Field(description="lines")
    removed: int


class VerdictShape(Shape):
    """What an agent itself says of a check. It decides nothing."""

    name: str
    passed: bool
    detail: str
    at: datetime


class ResultShape(Shape):
    """What came of a task."""

    message: str = Field(description="the agent's last words")
    files: list[FileChangeShape]
    checks: list[CheckedShape] = Field(description="of the last round")
    health: HealthShape | None = Field(description="of the last round; null where nobody looked")
    rounds: list[RoundShape]
    plan: str | None
    reviews: list[ReviewedShape]
    reverted: list[str] = Field(description="what it changed though it was not to, put back")
    verdicts: list[VerdictShape] = Field(description="the agent's own word; no check's pass")
    commit: str | None = Field(description="what it made, off all branches; the sandbox has it")
    unseen: str | None = Field(description="why it is not known what was changed, where it is not")
    warnings: list[str] = Field(description="what to doubt although the task was completed")
    seconds: float


class ResultSummary(Shape):
    """The same in numbers."""

    message: str = Field(description=f"its first {_SHOWN} characters")
    files: int
    added: int = Field(description="lines")
    removed: int
    checks: list[OutcomeShape]
    healthy: bool | None = Field(description="null where no app was looked at")
    rounds: int
    seconds: float


def show_result(result: Result, claims: Sequence[Claim] = ()) -> ResultShape:
    return ResultShape(
        message=result.message,
        files=[
            FileChangeShape(path=each.path, kind=each.kind, added=each.added, removed=each.removed)
            for each in result.files
        ],
        checks=[
            CheckedShape(
                name=each.name,
                state=each.state,
                exit_code=each.exit_code,
                seconds=round(each.seconds, 3),
                output=each.output,
                why=each.why or None,
            )
            for each in result.checks
        ],
        health=show_health(result.health) if result.health else None,
        rounds=[_round(each) for each in result.rounds],
        plan=result.plan or None,
        reviews=[_reviewed(each) for each in result.reviews],
        reverted=list(result.reverted),
        verdicts=[
            VerdictShape(name=each.name, passed=each.passed, detail=each.detail, at=at(each.at))
            for each in claims
        ],
        commit=result.commit or None,
        unseen=result.unseen or None,
        warnings=list(result.warnings),
        seconds=round(result.seconds, 3),
    )


def _round(each: Round) -> RoundShape:
    return RoundShape(
        number=each.number,
        run=each.run,
        passed=each.names(CheckState.PASSED),
        failed=each.names(CheckState.FAILED),
        unknown=each.names(CheckState.UNKNOWN),
        error=each.error or None,
        fault=each.fault,
    )


def _reviewed(each: Reviewed) -> ReviewedShape:
    return ReviewedShape(
        number=each.number,
        run=each.run,
        verdict=each.opinion,
        approved=each.is_approved,
        findings=[FindingShape(severity=one.severity, text=one.text) for one in each.findings],
    )


def in_short(result: Result) -> ResultSummary:
    return ResultSummary(
        message=result.message[:_SHOWN],
        files=len(result.files),
        added=sum(each.added for each in result.files),
        removed=sum(each.removed for each in result.files),
        checks=[
            OutcomeShape(
                name=each.name,
                state=each.state,
                exit_code=each.exit_code,
                seconds=round(each.seconds, 3),
            )
            for each in result.checks
        ],
        healthy=result.health.is_well if result.health else None,
        rounds=len(result.rounds),
        seconds=round(result.seconds, 3),
    )
