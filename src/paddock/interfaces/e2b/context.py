"""What E2B's routes are given beside who asks: the way back, and sandboxes as they see them."""

from typing import Annotated

from fastapi import Depends, Header
from starlette.requests import HTTPConnection

from paddock.domain.errors import NotFound
from paddock.domain.records import SandboxRecord
from paddock.domain.team import Principal
from paddock.interfaces.api.context import Services, services_of
from paddock.interfaces.e2b.ids import meant
from paddock.interfaces.e2b.views import STATES
from paddock.services.builds import is_build

_LONGEST_KEY = 255


async def domain(connection: HTTPConnection) -> str:
    """What sandboxes' host names end with, and the port where they are, as the caller sees it."""
    named, port = services_of(connection).preview_domain, connection.url.port
    return f"{named}:{port}" if port else named


async def idempotency_key(
    value: Annotated[str, Header(alias="Idempotency-Key", max_length=_LONGEST_KEY)] = "",
) -> str:
    return f"e2b {value}" if value else ""


Domain = Annotated[str, Depends(domain)]
Key = Annotated[str, Depends(idempotency_key)]


async def find(given: Services, who: Principal, sandbox_id: str) -> SandboxRecord:
    """NotFound for what is gone, failed, or has outlived its time."""
    found = await given.sandboxes.get(who, meant(sandbox_id))
    if found.state not in STATES or given.e2b.passages.is_over(found) or is_build(found):
        raise missing(sandbox_id)
    return found


def missing(sandbox_id: str) -> NotFound:
    return NotFound(f"sandbox {sandbox_id[:80]} was not found")
