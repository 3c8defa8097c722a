"""The port to somebody who reads along with an agent and says whether it does what it should."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from paddock.domain.errors import InvalidRequest


class Standing(StrEnum):
    """Whether an agent is at what it was asked to do."""

    ON_TRACK = "on_track"
    ASTRAY = "astray"
    UNKNOWN = "unknown"
    """Nobody could tell. It never counts as on track."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """What there is to read."""

    prompt: str
    lines: tuple[str, ...]
    """The end of what the agent did, in words."""


@dataclass(frozen=True, slots=True)
class Review:
    """What the reader says."""

    standing: Standing
    why: str = ""
    advice: str = ""
    """What the agent should be told."""


class Reviewer(Protocol):
    """Whoever it is, the guardian limits its time and goes on without it."""

    async def review(self, transcript: Transcript) -> Review:
        """A domain error when there is no answer, or none that can be understood."""
        ...


@dataclass(frozen=True, slots=True)
class ReviewerConfig:
    """Settings under `[tasks.reviewer]`: a model that reads along, where `tasks.guardian.review`
    or a task wants one."""

    url: str = ""
    """The base URL of its API, such as https://api.anthropic.com or http://localhost:8000/v1; empty
    has nobody read along."""
    api: Literal["anthropic", "openai"] = "anthropic"
    """Which of the two it speaks: Messages or Chat Completions."""
    model: str = ""
    key_file: Path | None = None
    """A file with the API's key."""
    every_s: float = 300.0
    """How often one task is read."""
    timeout_s: float = 30.0
    """How long an answer may take; then the task goes on without it."""

    def __post_init__(self) -> None:
        if self.url and (not self.url.startswith(("http://", "https://")) or not self.model):
            raise InvalidRequest(
                f"tasks.reviewer has the url {self.url!r} and the model {self.model!r}",
                remediation="give an http:// or https:// url, and a model",
            )
        if not (self.every_s > 0 and self.timeout_s > 0):
            raise InvalidRequest("tasks.reviewer has a time of 0 or less", remediation="give more")
