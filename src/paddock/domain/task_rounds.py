"""Rounds of a task: what its checks say of what an agent made, and whether it tries again.

A check that could not be run, or gave no answer, has not passed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from paddock.domain.agent import WorkMode
from paddock.domain.app_health import OUTCOME, expected
from paddock.domain.reason import Reason
from paddock.domain.task_course import Next, Step
from paddock.domain.task_faults import Fault, fault_of_agent, fault_of_check
from paddock.domain.task_wish import Check, Rounds, TaskWish

NOT_RUN = -1
"""In place of an exit code."""
SKIPPED = "not run, because others have to pass first"
OUT_OF_TIME = "the task's time was up"
"""So begins why a check gave no answer that its task had no time left for."""
MOST_STALLED = 2
VERDICT_FORM = """\
The last line of your answer is your verdict, as JSON in one line, with nothing behind it:
{"verdict": "approve" or "revise", "findings": [{"severity": "major", "minor" or "nit", "text": "…"}]}
Approve when nothing but nits is left."""  # noqa: E501 - it is one line
_TAIL = 2000
_MOST_TOLD = 24_000


class CheckState(StrEnum):
    """What is known of a check."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It could not be run, or gave no answer."""


@dataclass(frozen=True, slots=True)
class Checked:
    """How a check ended."""

    name: str
    exit_code: int
    """124 at its time limit, 126 and 127 where it could not be started, -1 where it was not run."""
    output: str = ""
    """The end of what it said."""
    seconds: float = 0.0
    state: CheckState = CheckState.UNKNOWN
    why: str = ""
    """Why nothing is known."""

    @property
    def is_good(self) -> bool:
        return self.state is CheckState.PASSED


@dataclass(frozen=True, slots=True)
class Outcome:
    """A check of a round that is over, in short."""

    name: str
    state: CheckState
    exit_code: int = NOT_RUN


@dataclass(frozen=True, slots=True)
class Round:
    """One try: a run of the agent, and what the checks said of it."""

    number: int
    run: int
    """The agent's, that it ended with."""
    outcomes: tuple[Outcome, ...] = ()
    tree: str = ""
    """What was in the workspace then, as git names it; empty where nobody knows."""
    error: str = ""
    """Why the agent broke off, where it did: then nothing was checked."""
    fault: Fault | None = None
    """Whose it was that it did not pass; None where it did."""

    @property
    def is_good(self) -> bool:
        return not self.error and all(each.state is CheckState.PASSED for each in self.outcomes)

    def names(self, state: CheckState) -> list[str]:
        return [each.name for each in self.outcomes if each.state is state]

    def told(self, most: int) -> dict[str, object]:
        """As the event has it."""
        data: dict[str, object] = {"round": self.number, "of": most, "run": self.run}
        data |= {str(state): self.names(state) for state in CheckState}
        if self.error:
            data["error"] = self.error
        return data | {"fault": self.fault} if self.fault else data


@dataclass(frozen=True, slots=True)
class Left:
    """What a task may still use."""

    is_late: bool = False
    spent: str = ""
    """What of its budget is used up, in words."""


def checked_again(kept: Mapping[str, Any]) -> Checked:
    """As it was kept in the journal."""
    return Checked(**{**kept, "state": CheckState(kept["state"])})


def not_run(checks: Sequence[Check], found: Sequence[Checked], why: str) -> tuple[Checked, ...]:
    """All of them, in their order; those that nobody ran say so."""
    by_name = {each.name: each for each in found}
    return tuple(by_name.get(each.name, Checked(each.name, NOT_RUN, why=why)) for each in checks)


def judged(
    checks: Sequence[Check], found: Sequence[Checked], *, number: int, run: int, tree: str
) -> Round:
    """The round that these checks were of."""
    outcomes = tuple(Outcome(each.name, each.state, each.exit_code) for each in found)
    return Round(number, run, outcomes, tree, fault=_fault(checks, found))


def with_app(made: Round, outcome: Outcome, fault: Fault | None) -> Round:
    """An app counts like a check, and beside what nobody can say, it is worth another try."""
    is_open = made.fault in (None, Fault.UNKNOWN)
    outcomes = (*made.outcomes, outcome)
    return replace(made, outcomes=outcomes, fault=fault or made.fault if is_open else made.fault)


def broken_off(why: str, *, number: int, run: int) -> Round:
    return Round(number, run, error=why, fault=fault_of_agent(why))


def _fault(checks: Sequence[Check], found: Sequence[Checked]) -> Fault | None:
    """What is surely the surroundings' decides; what is surely the code's is worth another try,
    also beside what nobody can say."""
    faults = []
    for check, each in zip(checks, found, strict=True):
        if not each.is_good and each.why != SKIPPED and not each.why.startswith(OUT_OF_TIME):
            said = f"{each.output}\n{each.why}" if each.why else each.output
            answered = each.state is CheckState.FAILED
            faults.append(
                fault_of_check(each.exit_code, said, program=check.cmd[0], has_answered=answered)
            )
    sure = [each for each in faults if each.is_surroundings and each is not Fault.UNKNOWN]
    rest = [each for each in faults if each is Fault.CODE] or faults
    return next(iter((*sure, *rest)), None)


def after_round(
    rounds: Sequence[Round], limits: Rounds, left: Left, *, begun_anew: int = 0
) -> Next:
    """What follows from the last of them; a prompt is made by `next_prompt`. What was done again
    after the run `begun_anew`, because it was lost, is no standstill."""
    last = rounds[-1]
    if last.is_good:
        return Next(Step.COMPLETE)
    why, errors = _why(last), _last_errors(rounds)
    stalled = _stalled([each for each in rounds if each.run > begun_anew])
    is_outside = last.fault is not None and last.fault.is_surroundings
    tries = f"{why}, after {len(rounds)} rounds" if len(rounds) > 1 else why
    for is_so, reason, said in (
        (is_outside, Reason.SURROUNDINGS, f"{last.fault}: {why}"),
        (left.is_late, Reason.DEADLINE, f"its time is up; {why}"),
        (left.spent, Reason.BUDGET, f"{left.spent} are used; {why}"),
        (errors >= limits.errors, Reason.AGENT_ERROR, f"{errors} rounds broke off; {why}"),
        (stalled >= MOST_STALLED, Reason.NO_PROGRESS, f"{stalled} rounds changed nothing; {why}"),
        (len(rounds) >= limits.most, Reason.CHECKS_FAILED, tries),
    ):
        if is_so:
            return Next(Step.FAIL, "", reason, said)
    return Next(Step.BEGIN)


def _why(last: Round) -> str:
    if last.error:
        return f"the agent broke off: {last.error}"
    failed, unknown = last.names(CheckState.FAILED), last.names(CheckState.UNKNOWN)
    said = []
    if failed:
        said.append(f"these checks fail: {', '.join(failed)}")
    if unknown:
        said.append(f"these gave no answer: {', '.join(unknown)}")
    return f"the agent says that it is done, but {', and '.join(said)}"


def _last_errors(rounds: Sequence[Round]) -> int:
    count = 0
    for each in reversed(rounds):
        if not each.error:
            break
        count += 1
    return count


def _stalled(rounds: Sequence[Round]) -> int:
    """How many of the last ones have left all as it was."""
    count = 0
    for before, after in zip(reversed(rounds[:-1]), reversed(rounds), strict=False):
        is_same = bool(after.tree) and before.tree == after.tree
        if not is_same or before.outcomes != after.outcomes:
            break
        count += 1
    return count


def first_prompt(wish: TaskWish) -> str:
    """What the agent is told first, with what will be checked where that is wanted."""
    prompt = f"{wish.prompt}{manners(wish.mode)}"
    if not wish.rounds.tells or not (wish.checks or wish.health):
        return prompt
    lines = [f"- {each.name}: {_criterion(each)}" for each in wish.checks]
    lines += [f"- {OUTCOME}: {expected(wish.health)}"] if wish.health else []
    head = "When you say that you are done, these are run, and each has to pass:"
    return "\n".join((prompt, "", head, *lines))


def manners(mode: WorkMode) -> str:
    """What an agent is told of how it is to work; some keep to it only by this."""
    return {
        WorkMode.EXPLORE: "\n\nOnly look: change no file. What you change is put back, and your "
        "work counts as failed.",
        WorkMode.VALIDATE: "\n\nYou may run what you want, but you are not to change files: what "
        f"you change is put back. End with your verdict.\n\n{VERDICT_FORM}",
    }.get(mode, "")


def _criterion(check: Check) -> str:
    command = " ".join(check.cmd)
    return f"{check.description} (`{command}`)" if check.description else f"`{command}`"


def next_prompt(
    wish: TaskWish,
    last: Round,
    found: Sequence[Checked],
    *,
    resumes: bool,
    words: str,
    app: str = "",
) -> str:
    """What the agent is told at the beginning of the round after `last`, with what is wrong with
    the `app`. Who does not remember the rounds before is told everything again."""
    told = _broke_off(last) if last.error else _not_right(wish, last, found, app)
    if resumes:
        return told
    notes = (
        "Somebody has worked at this before you. What was done is in the workspace; look at it "
        f"first. Their last words were:\n{words[-_TAIL:] or '(none)'}"
    )
    return f"{first_prompt(wish)}\n\n{notes}\n\n{told}"


def _broke_off(last: Round) -> str:
    return (
        f"You broke off before you were done: {last.error[-_TAIL:]}\n"
        "Look at what you have done so far, and go on where you stopped."
    )


def _not_right(wish: TaskWish, last: Round, found: Sequence[Checked], app: str) -> str:
    bad = [
        (check, each)
        for check, each in zip(wish.checks, found, strict=True)
        if not each.is_good and each.why != SKIPPED
    ]
    room = max(_TAIL // 4, min(_TAIL, _MOST_TOLD // max(1, len(bad))))
    parts = [f"You said that you were done, but it is not right yet. {_counted(wish, last)}"]
    parts += [_complaint(check, each, room) for check, each in bad]
    parts += [app] if app else []
    if passed := last.names(CheckState.PASSED):
        parts.append(f"These passed, and have to pass again: {', '.join(passed)}.")
    parts.append("Find out why, put it right, and say when you are done.")
    return "\n\n".join(parts)


def _counted(wish: TaskWish, last: Round) -> str:
    most = f" of at most {wish.rounds.most}" if last.number <= wish.rounds.most else ""
    return f"That was round {last.number}{most}."


def _complaint(check: Check, found: Checked, room: int) -> str:
    how = f"failed with exit code {found.exit_code}"
    if found.state is CheckState.UNKNOWN:
        how = f"gave no answer: {found.why}"
    proves = f" It proves: {check.description}" if check.description else ""
    end = found.output[-room:].strip()
    said = f" The end of what it said:\n```\n{end}\n```" if end else " It said nothing."
    return f"The check {check.name} (`{' '.join(check.cmd)}`) {how}.{proves}{said}"
