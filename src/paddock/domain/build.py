"""Templates that a team builds step by step, and keeps under a name and tags."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from paddock.domain.errors import InvalidRequest

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MOST_LINES = 20_000


class StepKind(StrEnum):
    """What a step does; its arguments are those of the Dockerfile instruction of that name."""

    RUN = "RUN"
    COPY = "COPY"
    ENV = "ENV"
    WORKDIR = "WORKDIR"
    USER = "USER"


@dataclass(frozen=True, slots=True)
class Step:
    """One step. RUN: command, user. COPY: source, destination, owner, mode. ENV: names and values
    in turn. WORKDIR: path. USER: name."""

    kind: StepKind
    args: tuple[str, ...]
    files: str = ""
    """Under what the files of a COPY were handed in."""

    def arg(self, number: int) -> str:
        return self.args[number] if number < len(self.args) else ""


class BuildState(StrEnum):
    """Waiting is before anybody has said how."""

    WAITING = "waiting"
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Left:
    """What a build leaves for the sandboxes that are made of it."""

    snapshot_id: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""
    start: str = ""
    """Started with every sandbox."""
    ready: str = ""
    """Succeeds once what was started can be used."""


@dataclass(frozen=True, slots=True)
class Line:
    """Something that was said while it was built."""

    at: float
    text: str
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A command that a build could not go on without."""

    command: str
    user: str
    exit_code: int | None = None
    """None when it was not run: there is no such user."""

    def __str__(self) -> str:
        if self.exit_code is None:
            return f"there is no user {self.user!r} to run `{self.command}` as"
        return f"`{self.command}` ended with exit status {self.exit_code}"


@dataclass(frozen=True, slots=True)
class Build:
    """One build of a name."""

    id: str
    name: str
    created_at: float
    tags: tuple[str, ...]
    """Given to it once it is ready."""
    state: BuildState = BuildState.WAITING
    left: Left = field(default_factory=Left)
    why: str = ""
    """It failed."""
    failed_step: str = ""
    attempt: Attempt | None = None
    """What was to be run there, where that is what failed."""


@dataclass(frozen=True, slots=True)
class Family:
    """All builds of one name, and which of them each tag means."""

    name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    builds: Mapping[str, Build] = field(default_factory=dict)


AT_END = "end"
"""In place of a step's number: what comes after the last one."""


class StepFailed(Exception):
    """A build cannot go on."""

    def __init__(self, step: str, why: str, attempt: Attempt | None = None) -> None:
        super().__init__(why)
        self.step = step
        self.why = why
        self.attempt = attempt

    def at(self, step: str) -> "StepFailed":
        return StepFailed(step, self.why, self.attempt)


def check_build_name(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    raise InvalidRequest(
        f"a template cannot be called {name[:80]!r}",
        remediation="use 1 to 63 of a-z, 0-9, '.', '_' and '-', with a letter or digit at the ends",
    )


def check_tag(tag: str) -> str:
    if _TAG.fullmatch(tag):
        return tag
    raise InvalidRequest(
        f"{tag[:80]!r} is no tag", remediation="use up to 63 letters, digits, '.', '_' and '-'"
    )
