"""Tasks as the API takes them."""

import base64
import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from paddock.domain.agent import ToolServer, WorkMode
from paddock.domain.budget import Budget
from paddock.domain.ids import new_id
from paddock.domain.message import LONGEST_TTL_S, Mode
from paddock.domain.prompt_template import BUILT_IN, LONGEST_VALUE, MOST_VARIABLES
from paddock.domain.sandbox import Limits
from paddock.domain.task_wish import (
    DEFAULT_CHECK_S,
    DEFAULT_TIMEOUT_S,
    LONGEST_DESCRIPTION,
    LONGEST_TIMEOUT_S,
    MOST_CHECKS,
    MOST_DEPENDENCIES,
    MOST_ERRORS,
    MOST_FILES,
    MOST_REVIEWS,
    MOST_ROUNDS,
    Check,
    GivenFile,
    Review,
    Rounds,
    TaskWish,
    When,
    Workspace,
)
from paddock.interfaces.api.schemas.common import Env, Labels, Name, Shape, Text
from paddock.interfaces.api.schemas.egress import EgressWishShape
from paddock.interfaces.api.schemas.sandboxes import AppName, ResourcesWish
from paddock.interfaces.api.schemas.task_health import HealthWishShape
from paddock.services.task_attempts import Variant
from paddock.services.task_plans import Submission

BATCH_PREFIX = "bat"
MOST_IN_BATCH = 500
_MOST_ATTEMPTS = 16
_MOST_TOOLS = 32
_MOST_PATHS = 256

AgentName = Annotated[Text, Field(max_length=64, examples=["claude_code"])]
ModelName = Annotated[Text, Field(max_length=200, description="the agent's own unless said")]
Timeout = Annotated[float, Field(gt=0, le=LONGEST_TIMEOUT_S, allow_inf_nan=False)]
SandboxName = Annotated[Text, Field(max_length=64)]


class GivenFileShape(Shape):
    """A file that is in the workspace before the agent begins."""

    path: Annotated[Text, Field(min_length=1, max_length=4096, description="within the workspace")]
    text: Text = ""
    base64: Annotated[str, Field(description="instead of text, for any bytes")] = ""
    mode: Annotated[int, Field(ge=0, le=0o777, description="420 is rw-r--r--")] = 0o644

    @model_validator(mode="after")
    def _decodable(self) -> "GivenFileShape":
        if self.text and self.base64:
            raise ValueError("text and base64 exclude each other")
        base64.b64decode(self.base64, validate=True)
        return self

    def read(self) -> GivenFile:
        data = base64.b64decode(self.base64) or self.text.encode()
        return GivenFile(self.path, data, self.mode)


class CheckShape(Shape):
    """A command whose exit code says whether what the agent made is good."""

    name: Annotated[Text, Field(min_length=1, max_length=80)]
    cmd: Annotated[list[Text], Field(min_length=1, max_length=1024, examples=[["make", "test"]])]
    timeout_s: Timeout = DEFAULT_CHECK_S
    description: Annotated[
        Text, Field(max_length=LONGEST_DESCRIPTION, description="what it proves, for the agent")
    ] = ""
    when: Annotated[
        When, Field(description="after every `round`, or at the `end`: when all others pass")
    ] = When.ROUND

    def read(self) -> Check:
        return Check(self.name, tuple(self.cmd), self.timeout_s, self.description, self.when)


class RoundsShape(Shape):
    """How often the agent may try until all checks pass."""

    most: Annotated[int, Field(ge=1, le=MOST_ROUNDS)] = 1
    errors: Annotated[
        int, Field(ge=1, le=MOST_ERRORS, description="so many that it breaks off in a row")
    ] = 3
    tell: Annotated[
        bool, Field(description="say beforehand what is checked; with several rounds always")
    ] = False

    def read(self) -> Rounds:
        return Rounds(self.most, self.errors, self.tell)


class ReviewShape(Shape):
    """Who looks at what the agent made, until only nits are left."""

    agent: Annotated[AgentName, Field(description="the task's own unless said")] = ""
    model: ModelName = ""
    rounds: Annotated[
        int, Field(ge=0, le=MOST_REVIEWS, description="reviews at most; 0 is none")
    ] = 2
    plan: Annotated[bool, Field(description="it makes a plan first, and works by it")] = False
    min_lines: Annotated[
        int,
        Field(ge=0, le=1 << 20, description="a smaller change is not reviewed; 0 reviews any"),
    ] = 0

    def read(self) -> Review:
        return Review(self.agent, self.model, self.rounds, self.plan, self.min_lines)


class ToolShape(Shape):
    """An MCP server: a program in the sandbox, or an address."""

    name: Annotated[Text, Field(min_length=1, max_length=64)]
    command: Annotated[list[Text], Field(max_length=1024)] = Field(default_factory=list)
    env: Env = Field(default_factory=dict)
    url: Annotated[Text, Field(max_length=2048)] = ""

    @model_validator(mode="after")
    def _reachable(self) -> "ToolShape":
        if bool(self.command) == bool(self.url):
            raise ValueError("give either a command or a url")
        return self

    def read(self) -> ToolServer:
        return ToolServer(self.name, tuple(self.command), self.env, self.url)


class BudgetShape(Shape):
    """The most that it may use; what is null is not limited."""

    tokens: Annotated[int, Field(gt=0, le=1 << 53)] | None = None
    cost_usd: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None
    turns: Annotated[int, Field(gt=0, le=1 << 31)] | None = Field(
        default=None, description="answers of the model, each with the tools that it calls"
    )

    def read(self) -> Budget:
        return Budget(self.tokens, self.cost_usd, self.turns)


class CreateTask(Shape):
    """What an agent shall do, and where."""

    prompt: Annotated[Text, Field(description="at most 1 MiB; it is never part of a command line")]
    variables: Annotated[
        dict[
            Annotated[Text, Field(max_length=64)], Annotated[Text, Field(max_length=LONGEST_VALUE)]
        ]
        | None,
        Field(
            max_length=MOST_VARIABLES,
            description="what stands for `{{name}}` in the prompt, beside "
            f"{', '.join(f'`{name}`' for name in BUILT_IN)}; never a secret. Without it braces "
            "mean nothing",
            examples=[{"title": "a broken link"}],
        ),
    ] = None
    agent: Annotated[
        AgentName, Field(description="who does it; of a follow-up, the agent of the one before")
    ] = ""
    model: ModelName = ""
    mode: Annotated[
        WorkMode,
        Field(
            description="`explore` only looks, `validate` runs things and gives a verdict: what "
            "they change is put back"
        ),
    ] = WorkMode.IMPLEMENT
    name: Name | Literal[""] = ""
    sandbox: Annotated[
        SandboxName, Field(min_length=1, description="one that is there, used as it is")
    ] = ""
    fork: Annotated[
        SandboxName, Field(min_length=1, description="one that is there: it works in a copy")
    ] = ""
    snapshot: Annotated[Text, Field(min_length=1, max_length=128)] = ""
    template: Annotated[Text, Field(max_length=512)] = ""
    provider: Annotated[Text, Field(max_length=64)] = ""
    app: AppName = ""
    resources: ResourcesWish | None = None
    egress: EgressWishShape | None = None
    directory: Annotated[
        Text,
        Field(max_length=4096, description="in the sandbox: in the user's home, or absolute"),
    ] = ""
    env: Env = Field(default_factory=dict)
    files: Annotated[list[GivenFileShape], Field(max_length=MOST_FILES)] = Field(
        default_factory=list
    )
    checks: Annotated[list[CheckShape], Field(max_length=MOST_CHECKS)] = Field(default_factory=list)
    rounds: RoundsShape = Field(default_factory=RoundsShape)
    review: ReviewShape | None = None
    health: HealthWishShape | None = None
    tools: Annotated[list[ToolShape], Field(max_length=_MOST_TOOLS)] = Field(default_factory=list)
    options: Annotated[
        dict[str, Any],
        Field(
            max_length=64,
            description="what only this agent understands, such as the `command` of `command`",
        ),
    ] = Field(default_factory=dict)
    budget: BudgetShape = Field(default_factory=BudgetShape)
    timeout_s: Timeout = DEFAULT_TIMEOUT_S
    after: Annotated[
        list[Annotated[Text, Field(max_length=64)]],
        Field(max_length=MOST_DEPENDENCIES, description="tasks that have to be completed first"),
    ] = Field(default_factory=list)
    follows: Annotated[
        Text, Field(max_length=64, description="the task whose session it goes on with")
    ] = ""
    scope: Annotated[
        list[Annotated[Text, Field(min_length=1, max_length=4096)]],
        Field(
            max_length=_MOST_PATHS,
            description="paths that the agent is meant to change; none is all of them",
        ),
    ] = Field(default_factory=list)
    guardian: Annotated[
        dict[
            Annotated[Text, Field(max_length=64)],
            Annotated[Text, Field(max_length=32)],
        ],
        Field(max_length=64, description="by rule: nudge, ask, pause, stop or off"),
    ] = Field(default_factory=dict)
    labels: Labels = Field(default_factory=dict)

    def read(self) -> TaskWish:
        return TaskWish(
            prompt=self.prompt,
            variables=self.variables,
            agent=self.agent,
            model=self.model,
            mode=self.mode,
            workspace=self._workspace(),
            labels=self.labels,
            env=self.env,
            files=tuple(each.read() for each in self.files),
            checks=tuple(each.read() for each in self.checks),
            rounds=self.rounds.read(),
            review=self.review.read() if self.review else None,
            health=self.health.read() if self.health else None,
            tools=tuple(each.read() for each in self.tools),
            options=self.options,
            budget=self.budget.read(),
            timeout_s=self.timeout_s,
            after=tuple(self.after),
            follows=self.follows,
            scope=tuple(self.scope),
            guardian=self.guardian,
        )

    def _workspace(self) -> Workspace:
        return Workspace(
            sandbox=self.sandbox,
            fork=self.fork,
            snapshot=self.snapshot,
            template=self.template,
            provider=self.provider,
            app=self.app,
            resources=self.resources.read() if self.resources else Limits(),
            egress=self.egress.read() if self.egress else None,
            directory=self.directory,
        )

    def submission(self, *, batch: str = "") -> Submission:
        return Submission(self.read(), name=self.name, batch=batch)


class CreateTasks(Shape):
    """Several at once: all of them are made, or none."""

    tasks: Annotated[list[CreateTask], Field(min_length=1, max_length=MOST_IN_BATCH)]

    def submissions(self, key: str) -> Sequence[Submission]:
        """Of one batch, whose id is of the key: what is sent again is the same request."""
        seal = hashlib.sha256(key.encode()).hexdigest()[:26]
        batch = f"{BATCH_PREFIX}_{seal}" if key else new_id(BATCH_PREFIX)
        return [each.submission(batch=batch) for each in self.tasks]


class VariantShape(Shape):
    """Who tries; what is left out is as in the task."""

    agent: AgentName = ""
    model: ModelName = ""

    def read(self) -> Variant:
        return Variant(self.agent, self.model)


class CreateAttempts(Shape):
    """The same task for several agents, or several times for one."""

    task: CreateTask
    variants: Annotated[
        list[VariantShape],
        Field(
            min_length=2,
            max_length=_MOST_ATTEMPTS,
            examples=[[{"agent": "claude_code"}, {"agent": "codex"}]],
        ),
    ]


class SendMessage(Shape):
    """Words for an agent that is at work."""

    text: Annotated[Text, Field(min_length=1)]
    mode: Annotated[
        Mode,
        Field(
            description="`now` at the next tool boundary, `turn` when this turn is over, "
            "`interrupt` at once; not every agent has every mode"
        ),
    ] = Mode.NOW
    ttl_s: Annotated[
        float | None,
        Field(
            gt=0,
            le=LONGEST_TTL_S,
            description="it ends as `expired` where no agent has it by then",
        ),
    ] = None
