"""The rules that are built in. Each is a pure function of what was seen and what happened."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from paddock.domain import budget as budgets
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.budget import Budget, Left, Spent
from paddock.domain.guardian.dangers import Place, Run, danger_in, runs_of
from paddock.domain.guardian.deeds import deed_of
from paddock.domain.guardian.history import LONGEST_CYCLE, Call, History
from paddock.domain.guardian.places import SCRATCH, matches, resolved
from paddock.domain.guardian.policy import Act, GuardianPolicy, RuleName
from paddock.domain.vitals import Measure, Standing, Thresholds, Vitals, diagnose, due


@dataclass(frozen=True, slots=True)
class Facts:
    """How a task stands when it is judged."""

    now: float
    state: str = "running"
    policy: GuardianPolicy = field(default_factory=GuardianPolicy)
    place: Place = field(default_factory=Place)
    """Where the agent works, and its home."""
    budget: Budget = field(default_factory=Budget)
    spent: Spent = field(default_factory=Spent)
    """With the event that is judged."""
    vitals: Vitals | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule has found. What is done about it is the policy's to say."""

    rule: str
    occurrence: str
    """The same for the same: it is brought up once, and again only after a while."""
    why: str
    text: str
    """What the agent should be told."""
    question: str = ""
    """What a person should be asked."""
    before: Mapping[str, Any] = field(default_factory=dict)
    once: bool = False
    """Never again in this task, however long ago it was."""
    at_least: Act = Act.OFF
    """What is done even where the policy would do less, unless the rule is off."""
    failed: bool = False
    """The rule itself did not work: that is told, and nothing is done."""


class Rule(Protocol):
    """One thing to watch for. One that is not built in may have an `act`: what is done about what
    it finds where a task says nothing of it; `note` unless it has."""

    @property
    def name(self) -> str: ...

    def judge(self, seen: History, event: AgentEvent | None, facts: Facts) -> Finding | None:
        """`seen` has the event in it already; None is a look at a time when nothing happened."""
        ...


@dataclass(frozen=True, slots=True)
class Loop:
    """The same call, or the same two or three in turn, over and over, and every time the same
    comes of it. A test that is run again after a change gives another result, or another call was
    in between."""

    name: str = RuleName.LOOP

    def judge(self, seen: History, event: AgentEvent | None, facts: Facts) -> Finding | None:
        if event is None or event.kind is not AgentEventKind.TOOL_RESULT:
            return None
        done = [call for call in seen.calls if call.outcome]
        for length in range(1, LONGEST_CYCLE + 1):
            if cycle := _cycle(done, length, facts.policy.repeats):
                return self._found(cycle, facts.policy.repeats)
        return None

    def _found(self, cycle: list[Call], repeats: int) -> Finding:
        tools = " and ".join(dict.fromkeys(call.tool for call in cycle))
        why = f"{tools} with the same input {repeats} times in a row, each with the same result"
        return Finding(
            self.name,
            occurrence="".join(sorted(call.digest for call in cycle)),
            why=why,
            text=f"You have called {tools} with exactly the same input {repeats} times and got the "
            "same result every time. It will not change by itself: say what you expected, find out "
            "why it is not so, and try something else.",
            question="The agent repeats itself. Shall it go on? What you write, it is told.",
            before={"repeats": repeats, "tool": tools},
        )


def _cycle(calls: list[Call], length: int, repeats: int) -> list[Call]:
    """The last calls, if they are one sequence repeated; else nothing."""
    last = calls[-length * repeats :]
    if len(last) < length * repeats:
        return []
    marks = [(call.tool, call.digest, call.outcome) for call in last]
    same = all(marks[number] == marks[number % length] for number in range(len(marks)))
    return last[:length] if same else []


_DIAGNOSED = "diagnosed"


@dataclass(frozen=True, slots=True)
class Stuck:
    """No sign of life; see `domain.vitals`, which also says when it is started again."""

    name: str = RuleName.STUCK

    def judge(self, seen: History, event: AgentEvent | None, facts: Facts) -> Finding | None:
        del seen
        if event is not None or facts.vitals is None:
            return None
        found = diagnose(facts.vitals, facts.now, facts.thresholds)
        rung = due(found.silent_s, facts.thresholds)
        if found.standing is not Standing.STUCK or rung is None:
            return None
        measure = Measure.NUDGE if rung.measure is Measure.NUDGE else Measure.ASK
        if measure is Measure.ASK and not facts.thresholds.ask_after_s:
            return None
        return Finding(
            self.name,
            occurrence=f"{found.since:.3f} {measure}",
            why=found.why,
            text=f"There was {found.why}. If you wait for something, say what for; if a command "
            "hangs, end it and do without.",
            question="The agent shows no sign of life. Shall it go on waiting? Deny ends it.",
            before={"silent_s": round(found.silent_s)},
            once=True,
            at_least=Act.ASK if measure is Measure.ASK else Act.OFF,
        )


def is_step(subject: str) -> bool:
    """Whether this is a step on the ladder of `domain.vitals`, which has a next one."""
    return subject.startswith(f"{RuleName.STUCK} ") and not subject.endswith(f" {_DIAGNOSED}")


def still_stuck(looks: int, why: str) -> Finding:
    """What nobody found the cause of: a person is asked, once."""
    return Finding(
        RuleName.STUCK,
        occurrence=_DIAGNOSED,
        why=f"{why}; it was looked into {looks} times",
        text="",
        question="The agent was stuck and looked into several times (`paddock task diagnose` shows "
        "what was found), and it is stuck again. Shall it go on? Deny ends it.",
        before={"diagnoses": looks},
        once=True,
        at_least=Act.ASK,
    )


@dataclass(frozen=True, slots=True)
class BudgetLow:
    """Nine tenths of a limit are used."""

    name: str = RuleName.BUDGET_LOW

    def judge(self, seen: History, event: AgentEvent | None, facts: Facts) -> Finding | None:
        del seen, event
        found = budgets.standing(facts.budget, facts.spent)
        if found.left is not Left.LITTLE:
            return None
        return Finding(
            self.name,
            occurrence=f"{found.of} {found.limit:g}",
            why=f"{found} are used",
            text=f"Little of this task's budget is left: {found} are used. Bring what you do to an "
            "end that is whole, and say what is missing.",
            question=f"{found} are used. Shall the agent go on?",
            before=_spent(found),
            once=True,
        )


@dataclass(frozen=True, slots=True)
class BudgetGone:
    """A limit is reached: nothing is killed, somebody is asked."""

    name: str = RuleName.BUDGET_GONE

    def judge(self, seen: History, event: AgentEvent | None, facts: Facts) -> Finding | None:
        del seen, event
        found = budgets.standing(facts.budget, facts.spent)
        if found.left is not Left.NOTHING:
            return None
        return Finding(
            self.name,
            occurrence=f"{found.of} {found.limit:g}",
            why=f"the budget is used up: {found}",
            text=f"This task's budget is used up: {found}. Stop here, and say what is missing.",
            question=f"The budget is used up: {found}. Approve to go on with as much again; deny "
            "to end the task with what there is.",
            before=_spent(found),
            once=True,
        )


def _spent(standing: budgets.Standing) -> dict[str, Any]:
    return {"of": standing.of, "used": standing.used, "limit": standing.limit}


@dataclass(frozen=True, slots=True)
class Danger:
    """A command that somebody should look at; `guardian.dangers` has the table."""

    name: str = RuleName.DANGER

    def judge(self, seen: History, event: AgentEvent | None, facts: Facts) -> Finding | None:
        del seen
        deed = deed_of(event) if event is not None else None
        found = danger_in(deed, facts.place) if deed is not None else None
        if deed is None or (found is None and not deed.is_cut):
            return None
        if found is None:
            why = f"a command of {deed.tool} was too long to judge: only its beginning was read"
            return Finding(self.name, "too long", why, "", failed=True)
        return Finding(
            self.name,
            occurrence=f"{found.name} {deed.digest}",
            why=f"{found.program}: {found.why}",
            text=f"You ran {found.program} in a way that {_they(found.why)}. If that is not what "
            "the task asks for, undo it where that is possible, and find another way.",
            question=f"The agent wants to run {found.program}: {found.why}. Shall it go on?",
            before={"danger": found.name, "program": found.program, "tool": deed.tool},
        )


def _they(why: str) -> str:
    return re.sub(r"^it ", "", why)


@dataclass(frozen=True, slots=True)
class Scope:
    """A file is changed that the task is not about."""

    name: str = RuleName.SCOPE

    def judge(self, seen: History, event: AgentEvent | None, facts: Facts) -> Finding | None:
        del seen
        scope, place = facts.policy.scope, facts.place
        if not scope or event is None:
            return None
        allowed = (*scope, *SCRATCH)
        for path in _written(event, place):
            if not matches(path, allowed, place.cwd, place.home):
                return self._found(path, scope)
        return None

    def _found(self, path: str, scope: tuple[str, ...]) -> Finding:
        shown = ", ".join(scope[:5]) + (", …" if len(scope) > 5 else "")
        return Finding(
            self.name,
            occurrence=path,
            why=f"{path[:200]} was changed, which is outside of the task's scope ({shown})",
            text=f"You changed {path[:200]}, but this task is only about {shown}. Put it back as "
            "it was, unless the task cannot be done without; then say why.",
            question=f"The agent changed {path[:200]}, outside of the task's scope ({shown}). "
            "Shall it go on?",
            before={"path": path[:200]},
        )


_WRITERS = {"tee": 0, "touch": 0, "rm": 0, "mkdir": 0, "truncate": 0, "cp": -1, "mv": -1, "ln": -1}
"""Programs whose operands are files that they change; from which one on."""


def _written(event: AgentEvent, place: Place) -> Iterator[str]:
    """Files that an event says are changed, where that can be told."""
    deed = deed_of(event)
    if deed is None:
        return
    if deed.writes:
        yield from (p for p in (resolved(w, place.cwd, place.home) for w in deed.paths) if p)
    if deed.argv:
        for run in runs_of(deed, place):
            yield from run.places([*run.command.writes, *_changed(run)])


def _changed(run: Run) -> list[str]:
    operands = list(run.operands())
    if run.program == "sed" and any(w.startswith(("-i", "--in-place")) for w in run.words):
        return operands[1:]
    if run.program == "mv":
        return operands
    return operands[_WRITERS[run.program] :] if run.program in _WRITERS else []


BUILT_IN: tuple[Rule, ...] = (Danger(), BudgetGone(), BudgetLow(), Loop(), Scope(), Stuck())
