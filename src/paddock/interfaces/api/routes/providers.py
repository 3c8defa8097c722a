"""`/v1/providers`: where sandboxes run, and how it is there."""

from dataclasses import asdict
from datetime import datetime

from fastapi import APIRouter
from pydantic import Field

from paddock.domain.team import Scope
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.schemas.common import ListOf, Shape, at
from paddock.ports.provider import Capabilities, Status
from paddock.services.health import Condition

router = APIRouter(prefix="/v1/providers", tags=["health"])


class FindingShape(Shape):
    """One thing that was looked at."""

    name: str
    status: Status
    found: str
    fix: str


class FaultShape(Shape):
    """What was wrong the last time that something was."""

    message: str
    at: datetime


class ProviderShape(Shape):
    """A provider as it was when it was last asked, a few seconds ago at most."""

    name: str
    default: bool
    usable: bool
    checked_at: datetime
    latency_s: float | None
    findings: list[FindingShape]
    last_error: FaultShape | None
    capabilities: Capabilities | None = Field(description="null when it could not be opened")


@router.get("")
async def list_providers(given: Given, who: Who) -> ListOf[ProviderShape]:
    """The providers of this installation: their health, latency, last error and capabilities."""
    who.require(Scope.SANDBOXES_READ)
    conditions = await given.health.all()
    return ListOf[ProviderShape](items=[_show(each) for each in conditions], next_cursor=None)


def _show(condition: Condition) -> ProviderShape:
    fault = condition.last_fault
    return ProviderShape(
        name=condition.name,
        default=condition.default,
        usable=condition.usable,
        checked_at=at(condition.checked_at),
        latency_s=condition.latency_s,
        findings=[FindingShape(**asdict(each)) for each in condition.findings],
        last_error=FaultShape(message=fault.message, at=at(fault.at)) if fault else None,
        capabilities=condition.capabilities,
    )
