"""Which rules watch over a task, and what each of them may do."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from paddock.domain.errors import InvalidRequest

MOST_REPEATS = 12
_LONGEST_SCOPE = 200


class Act(StrEnum):
    """What is done about what a rule has found; each goes further than the one before."""

    OFF = "off"
    NOTE = "note"
    """It is told to whoever follows the events, and nothing else is done."""
    NUDGE = "nudge"
    """The agent is told."""
    ASK = "ask"
    """The agent is paused and a person asked; the task waits for the answer."""
    PAUSE = "pause"
    """The agent is paused until somebody resumes the task."""
    STOP = "stop"
    """The task fails, with the reason; its sandbox is kept."""


Choice = Literal["off", "note", "nudge", "ask", "pause", "stop"]


class RuleName(StrEnum):
    """The rules that are built in."""

    LOOP = "loop"
    STUCK = "stuck"
    BUDGET_LOW = "budget_low"
    BUDGET_GONE = "budget_gone"
    DANGER = "danger"
    SCOPE = "scope"
    ODD = "odd"
    """What adds up: see `domain.quarantine`."""
    REVIEW = "review"
    """What a model says that has read along."""


DEFAULTS: Mapping[str, Act] = {
    RuleName.LOOP: Act.NUDGE,
    RuleName.STUCK: Act.NUDGE,
    RuleName.BUDGET_LOW: Act.NUDGE,
    RuleName.BUDGET_GONE: Act.ASK,
    RuleName.DANGER: Act.ASK,
    RuleName.SCOPE: Act.NUDGE,
    RuleName.ODD: Act.ASK,
    RuleName.REVIEW: Act.OFF,
}


@dataclass(frozen=True, slots=True)
class GuardianPolicy:
    """Of one task: what was said for it, and the installation's word for the rest."""

    acts: Mapping[str, Act] = field(default_factory=dict)
    """By rule; a rule that is not named does what is usual for it."""
    scope: tuple[str, ...] = ()
    """Where the agent may change files: paths and patterns, relative ones from its directory on.
    Empty means everywhere."""
    repeats: int = 4
    """The same call with the same result so many times in a row is a loop."""
    cooldown_s: float = 600.0
    """The same is not brought up again before."""

    def __post_init__(self) -> None:
        if not 2 <= self.repeats <= MOST_REPEATS:
            raise InvalidRequest(
                f"the guardian's repeats is {self.repeats}; it must be 2 to {MOST_REPEATS}",
                remediation="4 is usual",
            )
        if not 0 <= self.cooldown_s <= 86_400:
            raise InvalidRequest(
                f"the guardian's cooldown_s is {self.cooldown_s:g}; it must be 0 to 86400",
                remediation="600 is usual",
            )
        if len(self.scope) > _LONGEST_SCOPE or any("\0" in each or not each for each in self.scope):
            raise InvalidRequest(
                f"the scope has {len(self.scope)} patterns, or an empty one",
                remediation=f"give at most {_LONGEST_SCOPE}, such as src/** or docs/*.md",
            )

    def act(self, rule: str) -> Act:
        return self.acts.get(rule, DEFAULTS.get(rule, Act.NOTE))

    def of_task(self, said: Mapping[str, str], scope: tuple[str, ...]) -> "GuardianPolicy":
        """With what was said for one task, by rule. InvalidRequest for what there is not."""
        known = dict.fromkeys((*RuleName, *self.acts))
        for rule, act in said.items():
            if rule not in known or act not in set(Act):
                raise InvalidRequest(
                    f"the guardian has no {rule[:80]} = {act[:80]!r}",
                    remediation=f"set one of {', '.join(known)} to one of {', '.join(Act)}",
                )
        acts = {**self.acts, **{rule: Act(act) for rule, act in said.items()}}
        return replace(self, acts=acts, scope=scope)


@dataclass(frozen=True, slots=True)
class GuardianConfig:
    """Settings under `[tasks.guardian]`: what watches over every task that says nothing of it."""

    loop: Choice = "nudge"
    """The same tool call with the same result, several times in a row."""
    stuck: Choice = "nudge"
    """No output, no CPU and no network; a nudge is followed by a question: see [tasks.health]."""
    budget_low: Choice = "nudge"
    """A tenth of the task's budget is left."""
    budget_gone: Choice = "ask"
    """The budget is used up: the agent waits until somebody has answered, and loses nothing."""
    danger: Choice = "ask"
    """A command that somebody should look at, such as a forced push to main."""
    scope: Choice = "nudge"
    """A file is changed outside of the task's scope."""
    odd: Choice = "ask"
    """Odd behaviour that adds up; see [tasks.odd]."""
    review: Choice = "off"
    """What a model says that reads along; needs [tasks.reviewer]."""
    repeats: int = 4
    """So many times in a row make a loop."""
    cooldown_s: float = 600.0
    """The same is not brought up again before."""
    ask_timeout_s: float = 86_400.0
    """How long a question waits for its answer."""
    own: tuple[str, ...] = ()
    """Rules that are not Paddock's, as `package.module:Class` of a Python package beside it."""

    def __post_init__(self) -> None:
        self.policy()

    def policy(self) -> GuardianPolicy:
        acts = {name.value: Act(getattr(self, name)) for name in RuleName}
        return GuardianPolicy(acts, repeats=self.repeats, cooldown_s=self.cooldown_s)
