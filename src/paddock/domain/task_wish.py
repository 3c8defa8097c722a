"""What somebody wants done: said once when a task is made, and never changed."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paddock.domain.agent import ToolServer, WorkMode
from paddock.domain.app_health import HealthWish, check_health
from paddock.domain.budget import Budget
from paddock.domain.egress import EgressWish
from paddock.domain.errors import InvalidRequest
from paddock.domain.prompt_template import check_template, filled_in, size_filled_in, size_of
from paddock.domain.sandbox import Limits

LONGEST_PROMPT = 1 << 20
DEFAULT_TIMEOUT_S = 3600.0
LONGEST_TIMEOUT_S = 86_400.0
MOST_DEPENDENCIES = 64
MOST_CHECKS = 32
MOST_FILES = 1000
LARGEST_FILES = 8 << 20
MOST_ROUNDS = 20
MOST_ERRORS = 20
MOST_REVIEWS = 10
DEFAULT_CHECK_S = 120.0
LONGEST_DESCRIPTION = 2000
_CHECK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/-]{0,79}")


class When(StrEnum):
    """When a check is run."""

    ROUND = "round"
    """After every round."""
    END = "end"
    """When all others have passed: for what takes long."""


@dataclass(frozen=True, slots=True)
class Check:
    """A command whose exit code says whether what the agent made is good."""

    name: str
    cmd: tuple[str, ...]
    timeout_s: float = DEFAULT_CHECK_S
    description: str = ""
    """What it proves."""
    when: When = When.ROUND


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often an agent may try until all checks pass."""

    most: int = 1
    errors: int = 3
    """So many rounds in a row that the agent itself breaks off, and no more."""
    tell: bool = False
    """The agent is told beforehand what will be checked. With several rounds it is told anyway."""

    @property
    def tells(self) -> bool:
        return self.tell or self.most > 1


@dataclass(frozen=True, slots=True)
class Review:
    """Who looks at what an agent made, and whether it makes a plan first."""

    agent: str = ""
    """The task's own unless said; in a session of its own in any case."""
    model: str = ""
    rounds: int = 2
    """So many reviews at most; 0 is none, and only a plan."""
    plan: bool = False
    min_lines: int = 0
    """A change of fewer lines is not reviewed, and the result warns of that."""


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file that is in the workspace before the agent begins."""

    path: str
    """Within the workspace."""
    data: bytes = field(repr=False)
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a task works: in a sandbox that is there, or in one that is made for it."""

    sandbox: str = ""
    """One that is there: it is used as it is."""
    fork: str = ""
    """One that is there: the task works in a copy of it."""
    snapshot: str = ""
    template: str = ""
    provider: str = ""
    app: str = ""
    resources: Limits = field(default_factory=Limits)
    egress: EgressWish | None = None
    directory: str = ""
    """Where in the sandbox; in the user's home or absolute."""

    @property
    def makes_one(self) -> bool:
        return not self.sandbox


@dataclass(frozen=True, slots=True)
class TaskWish:
    """All of it."""

    prompt: str
    """With `{{names}}` in it, where there are variables."""
    agent: str
    model: str = ""
    mode: WorkMode = WorkMode.IMPLEMENT
    workspace: Workspace = field(default_factory=Workspace)
    variables: Mapping[str, str] | None = None
    """What stands for names in the prompt; none at all leaves its braces as they are."""
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: tuple[GivenFile, ...] = ()
    checks: tuple[Check, ...] = ()
    rounds: Rounds = field(default_factory=Rounds)
    review: Review | None = None
    health: HealthWish | None = None
    """The app that is looked at after the checks."""
    tools: tuple[ToolServer, ...] = ()
    """MCP servers that the agent may use."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What only this agent understands, such as the command of `command`."""
    budget: Budget = field(default_factory=Budget)
    timeout_s: float = DEFAULT_TIMEOUT_S
    after: tuple[str, ...] = ()
    """Tasks that have to be completed first."""
    follows: str = ""
    """The task whose session it goes on with."""
    scope: tuple[str, ...] = ()
    """Paths of the workspace that the agent is meant to change; empty is all."""
    guardian: Mapping[str, str] = field(default_factory=dict)
    """By rule, what it does here instead of what is set for all: nudge, ask, pause, stop, off."""


def checked(wish: TaskWish) -> TaskWish:
    """InvalidRequest that says what is wrong with it."""
    check_prompt(wish.prompt)
    if wish.variables is not None:
        check_template(wish.prompt, wish.variables)
        prompt_in_full(wish, {})
    check_timeout(wish.timeout_s)
    _check_workspace(wish.workspace)
    _check_amounts(wish)
    for check in wish.checks:
        if not _CHECK_NAME.fullmatch(check.name) or not check.cmd or not check.cmd[0]:
            raise InvalidRequest(
                f"the check {check.name[:80]!r} has no usable name or no command",
                remediation="name it with letters and digits, and give its command as a list",
            )
        check_timeout(check.timeout_s)
    _check_rounds(wish)
    if wish.review is not None:
        _check_review(wish, wish.review)
    if wish.health is not None:
        check_health(wish.health, [check.name for check in wish.checks])
    return wish


def check_prompt(prompt: str) -> str:
    """Any text, of any language and with any quotes: it is never part of a command line."""
    if not prompt.strip():
        raise InvalidRequest("the prompt is empty", remediation="say what the agent shall do")
    if "\0" in prompt:
        raise InvalidRequest(
            "the prompt has a NUL character, which no program can be given",
            remediation="leave it out, or give the data as a file",
        )
    _check_size(size_of(prompt))
    return prompt


def prompt_in_full(wish: TaskWish, known: Mapping[str, str]) -> str:
    """With its variables, its checks and what else is known; InvalidRequest if that is too long,
    before any of it is made."""
    checks = "\n".join(shlex.join(each.cmd) for each in wish.checks)
    values = {**(wish.variables or {}), "checks": checks, **known}
    _check_size(size_filled_in(wish.prompt, values), " with its variables filled in")
    return check_prompt(filled_in(wish.prompt, values))


def _check_size(size: int, how: str = "") -> None:
    if size > LONGEST_PROMPT:
        raise InvalidRequest(
            f"the prompt{how} has {size} bytes; {LONGEST_PROMPT} are the most",
            remediation="give the long part as a file, and name that in the prompt",
        )


def check_timeout(timeout_s: float) -> float:
    if not 0 < timeout_s <= LONGEST_TIMEOUT_S:
        raise InvalidRequest(
            f"timeout_s is {timeout_s:g}; it must be more than 0 and at most {LONGEST_TIMEOUT_S:g}",
            remediation="split what takes longer than a day into tasks that follow each other",
        )
    return timeout_s


def _check_workspace(workspace: Workspace) -> None:
    said = [
        name for name in ("sandbox", "fork", "snapshot", "template") if getattr(workspace, name)
    ]
    if len(said) > 1:
        raise InvalidRequest(
            f"a task works in one place, and {' and '.join(said)} are given",
            remediation="give one of sandbox, fork, snapshot and template, or none",
        )
    if workspace.sandbox and (workspace.egress or workspace.resources or workspace.app):
        raise InvalidRequest(
            f"sandbox {workspace.sandbox[:80]} is used as it is",
            remediation="change the sandbox itself, or let the task work in a fork of it",
        )
    if "\0" in workspace.directory or ".." in workspace.directory.split("/"):
        raise InvalidRequest(
            f"{workspace.directory[:80]!r} is no directory to work in",
            remediation="give one in the user's home, or an absolute path, without '..'",
        )


def _check_rounds(wish: TaskWish) -> None:
    for name, said, most in (
        ("rounds.most", wish.rounds.most, MOST_ROUNDS),
        ("rounds.errors", wish.rounds.errors, MOST_ERRORS),
    ):
        if not 1 <= said <= most:
            raise InvalidRequest(
                f"{name} is {said}; it must be 1 to {most}",
                remediation="give fewer, and let another task follow if there is more to do",
            )
    if wish.rounds.most > 1 and not wish.checks and wish.health is None:
        raise InvalidRequest(
            f"{wish.rounds.most} rounds are wanted, and there is no check to end them",
            remediation="give a check or `health` that says when it is right, or no `rounds`",
        )
    names = [check.name for check in wish.checks]
    if len(set(names)) < len(names):
        raise InvalidRequest(
            "two checks have the same name", remediation="give each a name of its own"
        )
    for check in wish.checks:
        if len(check.description) > LONGEST_DESCRIPTION:
            raise InvalidRequest(
                f"the description of the check {check.name} has {len(check.description)} "
                f"characters; {LONGEST_DESCRIPTION} are the most",
                remediation="say it shorter, and the rest in the prompt",
            )


def _check_review(wish: TaskWish, review: Review) -> None:
    if not 0 <= review.rounds <= MOST_REVIEWS or review.min_lines < 0:
        raise InvalidRequest(
            f"review.rounds is {review.rounds} and review.min_lines {review.min_lines}; "
            f"0 to {MOST_REVIEWS} reviews are possible, of 0 lines or more",
            remediation="give fewer, and let another task follow if there is more to do",
        )
    if not review.rounds and not review.plan:
        raise InvalidRequest(
            "a review without a round and without a plan is none", remediation="leave it out"
        )
    if wish.mode is not WorkMode.IMPLEMENT:
        raise InvalidRequest(
            f"what is done in the mode {wish.mode} is put back, and there is nothing to review",
            remediation="leave `review` out, or the mode",
        )


def _check_amounts(wish: TaskWish) -> None:
    for name, count, most in (
        ("after", len(wish.after), MOST_DEPENDENCIES),
        ("checks", len(wish.checks), MOST_CHECKS),
        ("files", len(wish.files), MOST_FILES),
    ):
        if count > most:
            raise InvalidRequest(f"{count} in {name}; {most} is the most", remediation="give fewer")
    for file in wish.files:
        if not file.path or file.path.startswith("/") or ".." in file.path.split("/"):
            raise InvalidRequest(
                f"{file.path[:80]!r} is no place for a file of the task",
                remediation="give a path within the workspace",
            )
    if (size := sum(len(file.data) for file in wish.files)) > LARGEST_FILES:
        raise InvalidRequest(
            f"the files have {size} bytes together; {LARGEST_FILES} are the most",
            remediation="upload larger ones into a sandbox, and let the task work in it",
        )
