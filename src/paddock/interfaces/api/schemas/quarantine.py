"""Shapes of sandboxes that were set aside."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from paddock.interfaces.api.schemas.common import Shape, at
from paddock.services.quarantine_cases import Case


class SetAside(Shape):
    """Why a sandbox is set aside."""

    why: Annotated[str, Field(min_length=1, max_length=500)]


class CaseSummary(Shape):
    """A sandbox that was set aside."""

    sandbox_id: str
    name: str
    by: str
    at: datetime
    why: str
    tasks: list[str] = Field(description="that were at work in it, and wait")
    snapshot: str | None = Field(description="of its disk, as it was then")
    missing: list[str] = Field(description="what could not be kept, and why")


class CaseShape(CaseSummary):
    """With the evidence."""

    before: str = Field(description="the state that it was in")
    diagnosis: dict[str, Any] = Field(description="of its task; empty where none was at work")
    events: list[dict[str, Any]]
    egress: list[dict[str, Any]]


def show_case(case: Case) -> CaseShape:
    return CaseShape.model_validate(
        _plain(case) | {"events": _timed(case.events), "egress": _timed(case.egress)}
    )


def summarize_case(case: Case) -> CaseSummary:
    return CaseSummary.model_validate(
        {name: value for name, value in _plain(case).items() if name in CaseSummary.model_fields}
    )


def _plain(case: Case) -> dict[str, Any]:
    told = asdict(case) | {"at": at(case.at), "snapshot": case.snapshot or None}
    del told["team_id"], told["is_still"]
    return told


def _timed(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [dict(event) | {"at": at(event["at"])} for event in events]
