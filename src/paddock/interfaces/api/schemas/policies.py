"""Command policies as the API shows and takes them."""

from typing import Annotated, Literal

from pydantic import Field

from paddock.domain.command_policy import LONGEST_RULE, MOST_RULES, CommandPolicy, Rule, Verdict
from paddock.interfaces.api.schemas.common import Env, Shape, Text
from paddock.services.policies import Holder, Ruling


class RuleShape(Shape):
    """One kind of command, and what becomes of it."""

    name: Annotated[Text, Field(min_length=1, max_length=100, examples=["no force"])]
    verdict: Verdict
    command: Annotated[
        Text,
        Field(
            min_length=1,
            max_length=LONGEST_RULE,
            description="the program, then its arguments: `*`, `?` and `[…]` match within a word, "
            "`**` any number of words",
            examples=["git ** push ** --force* **"],
        ),
    ]


class PolicyShape(Shape):
    """Rules in their order: the first that fits a command decides."""

    rules: Annotated[list[RuleShape], Field(max_length=MOST_RULES)] = Field(default_factory=list)
    default: Annotated[Verdict, Field(description="for what no rule fits")] = Verdict.ALLOW
    unknown: Annotated[
        Literal["ask", "deny"], Field(description="for what cannot be told before it runs")
    ] = "deny"

    def read(self) -> CommandPolicy:
        rules = tuple(Rule(rule.name, rule.verdict, rule.command) for rule in self.rules)
        return CommandPolicy(rules, self.default, Verdict(self.unknown))


class CheckCommand(Shape):
    """A command that is not run."""

    cmd: Annotated[list[Text], Field(min_length=1, max_length=10_000)]
    env: Env = Field(default_factory=dict)


class RulingShape(Shape):
    """What would become of it, and why."""

    verdict: Verdict
    policy: Holder | None = Field(description="whose policy decided")
    rule: str | None
    program: str | None = Field(description="what of the command it was decided about")
    why: str


def show_policy(policy: CommandPolicy) -> PolicyShape:
    return PolicyShape.model_construct(
        rules=[
            RuleShape.model_construct(name=rule.name, verdict=rule.verdict, command=rule.command)
            for rule in policy.rules
        ],
        default=policy.default,
        unknown=policy.unknown.value,
    )


def show_ruling(ruling: Ruling) -> RulingShape:
    decision = ruling.decision
    return RulingShape(
        verdict=decision.verdict,
        policy=ruling.holder,
        rule=decision.rule or None,
        program=decision.program or None,
        why=decision.why,
    )
