"""`/v1/sandboxes/{sandbox}/work` and `/v1/groups`: what was made, alone and beside others."""

from fastapi import APIRouter, Response

from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.schemas.common import Identity
from paddock.interfaces.api.schemas.files import answer
from paddock.interfaces.api.schemas.work import GroupShape, MadeShape, show_group, show_made

router = APIRouter(prefix="/v1", tags=["work"])


@router.get("/sandboxes/{sandbox}/work", response_model=MadeShape)
async def made(given: Given, who: Who, sandbox: str) -> Response:
    """Which files differ from what the work began with. The sandbox has to run, and to have git."""
    return answer(show_made(await given.work.made(who, sandbox)))


@router.get("/groups/{identity:path}/overlaps", response_model=GroupShape)
async def overlaps(given: Given, who: Who, identity: Identity) -> Response:
    """Which files were edited in more than one of the sandboxes that share an identity."""
    return answer(show_group(identity, await given.work.group(who, identity)))
