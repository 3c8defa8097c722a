"""Shapes of looking after tasks."""

from datetime import datetime

from pydantic import Field

from paddock.domain.examination import Examined
from paddock.interfaces.api.schemas.common import Shape, at
from paddock.services.task_cleaning import Swept


class KeptShape(Shape):
    """A task that stays, and why."""

    id: str
    why: str


class SweptShape(Shape):
    """What was forgotten, or would be."""

    tasks: list[str]
    sandboxes: list[str]
    kept: list[KeptShape]
    next_cursor: str | None = Field(None, description="ask with this cursor for the next page")


def show_swept(swept: Swept) -> SweptShape:
    return SweptShape(
        tasks=list(swept.tasks),
        sandboxes=list(swept.sandboxes),
        kept=[KeptShape(id=each.id, why=each.why) for each in swept.kept],
        next_cursor=swept.next or None,
    )


class ProcessShape(Shape):
    """One that runs in the sandbox; values of secrets are taken out of its command."""

    pid: int
    parent: int
    state: str = Field(description="R runs, S sleeps, D waits for a disk, T is stopped, Z is dead")
    cpu_s: float
    waits_in: str = Field(description="the kernel's function, where it says so")
    command: str


class DiagnosisShape(Shape):
    """What was found in a task's sandbox."""

    at: datetime
    why: str
    processes: list[ProcessShape]
    connections: list[str]
    refused: list[str] = Field(description="hosts that it was not let to")
    memory_mib: dict[str, float]
    disks: list[str]
    lines: list[str] = Field(description="the last that its agent said or did")
    questions: list[str] = Field(description="that wait for a person")
    missing: list[str] = Field(description="what could not be found out, and why")


def show_diagnosis(found: Examined) -> DiagnosisShape:
    return DiagnosisShape.model_validate({**found.data, "at": at(found.at)})
