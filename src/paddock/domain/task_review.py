"""Plan, do, review: who works at a task when, and what a reviewer's words amount to.

plan ──> work, round by round ──> review ──> work ──> review …

The plan and the work are of one session; each review is of a fresh one, of the same agent or of
another. Whoever does not say what they think of it has not approved it.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from paddock.domain.agent import WorkMode
from paddock.domain.conversation import Stage
from paddock.domain.desk.saying import Claim
from paddock.domain.reason import Reason
from paddock.domain.task_course import Next, Step
from paddock.domain.task_rounds import VERDICT_FORM, Left, first_prompt, manners
from paddock.domain.task_wish import Review, TaskWish

_LOOKED_AT = 50_000
_MOST_TRIED = 2_000
"""Braces at which a verdict may begin, from the last one on."""
_JSON = json.JSONDecoder()
_MOST_FINDINGS = 100
_LONGEST = 2000
_MOST_SILENT = 2
"""Who says nothing that can be read is asked once again."""


class Severity(StrEnum):
    """How bad something is."""

    MAJOR = "major"
    MINOR = "minor"
    NIT = "nit"


class Opinion(StrEnum):
    """What a reviewer thinks."""

    APPROVE = "approve"
    REVISE = "revise"
    UNKNOWN = "unknown"
    """Nothing that can be read as one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a reviewer does not like."""

    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class Reviewed:
    """One review."""

    number: int
    run: int
    opinion: Opinion
    findings: tuple[Finding, ...] = ()

    @property
    def is_approved(self) -> bool:
        """Only trifles are left. Who approves of something and calls it bad has not."""
        if self.opinion is Opinion.UNKNOWN:
            return False
        worst = {each.severity for each in self.findings}
        if self.opinion is Opinion.APPROVE:
            return Severity.MAJOR not in worst
        return worst == {Severity.NIT}

    def told(self) -> dict[str, Any]:
        """As the event has it."""
        findings = [{"severity": each.severity, "text": each.text} for each in self.findings]
        return {"review": self.number, "run": self.run, "verdict": self.opinion} | {
            "approved": self.is_approved,
            "findings": findings,
        }


def agent_at(wish: TaskWish, stage: Stage) -> str:
    """Who works then."""
    return (wish.review.agent if wish.review and stage is Stage.REVIEW else "") or wish.agent


def model_at(wish: TaskWish, stage: Stage) -> str:
    """The agent's own where it is empty."""
    if wish.review is None or stage is not Stage.REVIEW:
        return wish.model
    is_other = agent_at(wish, stage) != wish.agent
    return wish.review.model or ("" if is_other else wish.model)


def mode_at(wish: TaskWish, stage: Stage) -> WorkMode:
    return {Stage.PLAN: WorkMode.EXPLORE, Stage.REVIEW: WorkMode.VALIDATE}.get(stage, wish.mode)


def first_stage(wish: TaskWish) -> Stage:
    return Stage.PLAN if wish.review is not None and wish.review.plan else Stage.WORK


def opening(wish: TaskWish, stage: Stage) -> str:
    """What an agent is told that is told nothing else."""
    if stage is not Stage.PLAN:
        return first_prompt(wish)
    asked = (
        "Do not do this yet. Look at what is there, and make a plan: which files are to be "
        "changed, in which steps, and how it will be seen that it is right. Your last words are "
        "the plan, and all that is kept."
    )
    return f"{wish.prompt}\n\n{asked}{manners(WorkMode.EXPLORE)}"


def planned_prompt(wish: TaskWish, plan: str, *, resumes: bool) -> str:
    """With the plan in hand."""
    if resumes:
        return f"Do it now, by your plan. You may change files.{_criteria(wish)}"
    return f"{first_prompt(wish)}\n\nThis is the plan:\n\n{plan}"


def _criteria(wish: TaskWish) -> str:
    told = first_prompt(wish)
    return told[len(wish.prompt) :] if told.startswith(wish.prompt) else ""


def review_prompt(wish: TaskWish, plan: str, diff: str, *, is_cut: bool) -> str:
    """Everything that somebody needs who knows nothing of it."""
    parts = [
        "Review what somebody else has done. This was the task:",
        _quoted(wish.prompt),
        f"This was the plan:\n\n{_quoted(plan)}" if plan else "",
        f"These checks have passed: {', '.join(each.name for each in wish.checks)}."
        if wish.checks
        else "",
        f"This is what was changed:\n\n{_quoted(diff)}",
        "That is not all of it: look at the files for the rest." if is_cut else "",
        "Is it right, is it all of the task, and nothing else? Look at the files, and run what you "
        f"need to be sure.{manners(WorkMode.VALIDATE)}",
    ]
    return "\n\n".join(part for part in parts if part)


ASK_AGAIN = f"Your answer has no verdict that can be read.\n\n{VERDICT_FORM}"


def _quoted(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def revise_prompt(wish: TaskWish, last: Reviewed, *, resumes: bool) -> str:
    """What is wrong, for whoever did it."""
    findings = [f"- {each.severity}: {each.text}" for each in last.findings] or ["- (none named)"]
    told = "\n".join(
        (
            "Somebody has reviewed what you did, and it is not right yet:",
            *findings,
            "",
            "Put it right, and say when you are done. What is a nit you may leave. Where you "
            "think that the reviewer is wrong, say why.",
        )
    )
    return told if resumes else f"{first_prompt(wish)}\n\nThis was begun before you.\n\n{told}"


def opinion_of(words: str, claims: Sequence[Claim]) -> tuple[Opinion, tuple[Finding, ...]]:
    """The verdict of an agent: in its last words, or as it reported it by `report_verdict`."""
    opinion, findings = verdict_of(words)
    if opinion is not Opinion.UNKNOWN or not claims:
        return opinion, findings
    failed = [each for each in claims if not each.passed]
    found = [Finding(Severity.MAJOR, f"{each.name}: {each.detail}"[:_LONGEST]) for each in failed]
    return Opinion.REVISE if failed else Opinion.APPROVE, tuple(found[:_MOST_FINDINGS])


def verdict_of(words: str) -> tuple[Opinion, tuple[Finding, ...]]:
    """The last thing in somebody's last words that is a verdict."""
    text = words[-_LOOKED_AT:]
    at = text.rfind("{")
    for _ in range(_MOST_TRIED):
        if at < 0:
            break
        # What is nested too deep to be read is no verdict.
        with suppress(ValueError, RecursionError):
            said, _ = _JSON.raw_decode(text, at)
            if isinstance(said, dict) and "verdict" in said:
                return _read(said)
        at = text.rfind("{", 0, at)
    return Opinion.UNKNOWN, ()


def _read(said: dict[str, Any]) -> tuple[Opinion, tuple[Finding, ...]]:
    opinion = str(said["verdict"]).strip().lower()
    listed = said.get("findings")
    found = [_finding(each) for each in listed] if isinstance(listed, list) else []
    if opinion not in (Opinion.APPROVE, Opinion.REVISE):
        return Opinion.UNKNOWN, ()
    return Opinion(opinion), tuple(found[:_MOST_FINDINGS])


def _finding(said: object) -> Finding:
    """What has no severity that is known may be bad."""
    if not isinstance(said, dict):
        return Finding(Severity.MAJOR, str(said)[:_LONGEST])
    severity = str(said.get("severity", "")).strip().lower()
    known = Severity(severity) if severity in list(Severity) else Severity.MAJOR
    return Finding(known, str(said.get("text", ""))[:_LONGEST])


def after_validation(
    wish: TaskWish, reviews: Sequence[Reviewed], left: Left, *, resumes: bool
) -> Next:
    """Return the next step in mode validate. Any verdict completes the task; none fails it."""
    if reviews[-1].opinion is not Opinion.UNKNOWN:
        return Next(Step.COMPLETE)
    why = "the agent gave no verdict that can be read"
    silent = sum(each.opinion is Opinion.UNKNOWN for each in reviews)
    for is_so, reason, words in (
        (silent >= _MOST_SILENT, Reason.NOT_APPROVED, f"{why}, twice"),
        (left.is_late, Reason.DEADLINE, f"its time is up; {why}"),
        (left.spent, Reason.BUDGET, f"{left.spent} are used; {why}"),
    ):
        if is_so:
            return Next(Step.FAIL, "", reason, words)
    prompt = ASK_AGAIN if resumes else f"{first_prompt(wish)}\n\n{ASK_AGAIN}"
    return Next(Step.BEGIN, prompt, stage=Stage.WORK)


def after_review(reviews: Sequence[Reviewed], limits: Review, left: Left) -> Next:
    """What follows from the last one; who is to work then is the stage."""
    last = reviews[-1]
    if last.is_approved:
        return Next(Step.COMPLETE)
    said = sum(each.opinion is not Opinion.UNKNOWN for each in reviews)
    silent = all(each.opinion is Opinion.UNKNOWN for each in reviews[-_MOST_SILENT:])
    is_silent = silent and len(reviews) >= _MOST_SILENT
    bad = "; ".join(each.text for each in last.findings if each.severity is not Severity.NIT)
    why = f"the reviewer does not approve of it: {bad or 'nothing was named'}"
    for is_so, reason, words in (
        (left.is_late, Reason.DEADLINE, f"its time is up; {why}"),
        (left.spent, Reason.BUDGET, f"{left.spent} are used; {why}"),
        (is_silent, Reason.NOT_APPROVED, "the reviewer gave no verdict that can be read, twice"),
        (said >= limits.rounds, Reason.NOT_APPROVED, f"{why}, after {said} reviews"),
    ):
        if is_so:
            return Next(Step.FAIL, "", reason, words)
    if last.opinion is Opinion.UNKNOWN:
        return Next(Step.BEGIN, ASK_AGAIN, stage=Stage.REVIEW)
    return Next(Step.BEGIN, stage=Stage.WORK)
