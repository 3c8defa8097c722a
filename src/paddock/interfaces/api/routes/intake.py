"""`/v1/sandboxes/{sandbox}/events`: what agents and programs tell of."""

import json
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from paddock.domain.errors import InvalidRequest
from paddock.domain.event import CUSTOM_KIND
from paddock.domain.intake import LARGEST_DATA, LAST_SEQ, MOST_AT_ONCE, Report, SourceState
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.paging import ByName
from paddock.interfaces.api.schemas.common import ListOf, Shape, Text, at, page_of

router = APIRouter(prefix="/v1/sandboxes/{sandbox}", tags=["events"])
_NDJSON = "application/x-ndjson"


class ReportShape(Shape):
    """One event as its source tells it."""

    source: Annotated[
        Text, Field(min_length=1, max_length=100, description="each counts its own events")
    ]
    seq: Annotated[int, Field(ge=1, le=LAST_SEQ, strict=True, description="1, 2, 3, …")]
    kind: Annotated[str, Field(pattern=f"^{CUSTOM_KIND}$", examples=["custom.agent.step"])]
    data: dict[str, JsonValue] = Field(default_factory=dict)
    at: datetime | None = Field(None, description="when, by the source's own clock")

    def read(self) -> Report:
        moment = self.at.timestamp() if self.at else None
        return Report(self.source, self.seq, self.kind, self.data, moment)


class ReceiptShape(Shape):
    """What became of one reported event."""

    source: str
    seq: int
    event: int | None = Field(description="its number in the log; null when it was stored before")


class SourceShape(Shape):
    """How far a source has come."""

    source: str
    last_seq: int
    missing: list[tuple[int, int]] = Field(
        description="what was left out, from and to; it may still be sent"
    )
    changed_at: datetime


class AcknowledgementShape(Shape):
    """All of it is stored, and need not be sent again."""

    sources: list[SourceShape]
    events: list[ReceiptShape]


_one = ReportShape.model_json_schema()
_several = {"type": "array", "items": _one, "minItems": 1, "maxItems": MOST_AT_ONCE}
_reports: TypeAdapter[list[ReportShape]] = TypeAdapter(
    Annotated[list[ReportShape], Field(min_length=1, max_length=MOST_AT_ONCE)]
)
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": _several}, _NDJSON: {"schema": _one}},
    }
}


@router.post("/events", openapi_extra=_BODY)
async def accept(request: Request, given: Given, who: Who, sandbox: str) -> AcknowledgementShape:
    """Tell of events: a list as JSON, or one a line as NDJSON. They are stored when this answers.

    Each source counts its events from 1. One that was sent before is not stored again, so that
    whoever got no answer sends the same once more. What was left out is told in `missing`.
    """
    reports = _read(request.headers.get("content-type", ""), await request.body())
    done = await given.intake.accept(who, sandbox, [each.read() for each in reports])
    return AcknowledgementShape(
        sources=[_source(each) for each in done.sources],
        events=[
            ReceiptShape(source=each.source, seq=each.seq, event=each.event)
            for each in done.receipts
        ],
    )


@router.get("/events/sources")
async def sources(given: Given, who: Who, sandbox: str, page: ByName) -> ListOf[SourceShape]:
    """Who has told of events in it, how far they have come, and what is missing."""
    found = await given.intake.sources(who, sandbox)
    return page_of(found, page, _source, lambda state: state.source)


def _read(content_type: str, body: bytes) -> list[ReportShape]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _NDJSON:
        lines = [line for line in body.split(b"\n") if line.strip()]
        if len(lines) > MOST_AT_ONCE:
            raise InvalidRequest(
                f"there are {len(lines)} events in one request",
                remediation=f"send at most {MOST_AT_ONCE}",
            )
        body = b"[" + b",".join(lines) + b"]"
    elif kind not in ("application/json", ""):
        raise InvalidRequest(
            f"events do not come as {kind[:80]}", remediation=f"send application/json or {_NDJSON}"
        )
    try:
        found = _reports.validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(_named(error)) from None
    for each in found:
        _check_size(each)
    return found


def _named(error: ValidationError) -> list[Any]:
    """Which event of the batch it is, and never what was in it."""
    return [
        {**each, "loc": ("event", *each["loc"]), "input": None}
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]


def _check_size(report: ReportShape) -> None:
    size = len(json.dumps(report.data, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if size > LARGEST_DATA:
        raise InvalidRequest(
            f"the data of event {report.seq} of {report.source} has {size} bytes",
            remediation=f"send at most {LARGEST_DATA}; keep large content in files",
        )


def _source(state: SourceState) -> SourceShape:
    return SourceShape(
        source=state.source,
        last_seq=state.last_seq,
        missing=list(state.missing),
        changed_at=at(state.changed_at),
    )
