"""`/v1/system/status`, the state of everything, and how one sandbox is."""

from fastapi import APIRouter

from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.schemas.status import (
    CheckupShape,
    StatusShape,
    show_checkup,
    show_status,
)

router = APIRouter(prefix="/v1", tags=["health"])


@router.get("/system/status")
async def status(given: Given, who: Who) -> StatusShape:
    """Servers with their last sign of life, tasks by state and phase, strays, what was set aside,
    what models cost, and providers: of your team, and for operators of all."""
    return show_status(await given.care.status.look(who))


@router.get("/sandboxes/{sandbox}/health")
async def health(given: Given, who: Who, sandbox: str) -> CheckupShape:
    """Its state, and how long it takes to answer. One that sleeps is not woken, and not asked."""
    return show_checkup(await given.care.checkups.ask(who, sandbox))
