"""`/v1/templates/{template}/pool`: how many sandboxes of a template wait ready."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.routes.templates import ProviderName
from paddock.interfaces.api.schemas.common import Shape
from paddock.services.pools import LARGEST_POOL, PoolState
from paddock.services.settings import Origin

router = APIRouter(prefix="/v1/templates/{template}/pool", tags=["templates"])


class ChangePool(Shape):
    """How many shall wait from now on."""

    size: Annotated[
        int | None, Field(ge=0, le=LARGEST_POOL, description="null: what the configuration says")
    ]


class PoolShape(Shape):
    """A template's pool."""

    template: str
    provider: str
    size: int = Field(description="how many shall wait")
    source: Origin
    kept: int = Field(description="how many do while memory is as short as it is now")
    ready: int = Field(description="how many wait now")


@router.get("")
async def get(given: Given, who: Who, *, template: str, provider: ProviderName = "") -> PoolShape:
    """How many wait ready, so that a create is a claim."""
    return _show(await given.pools.get(who, provider, template))


@router.patch("")
async def change(
    given: Given, who: Who, *, template: str, wanted: ChangePool, provider: ProviderName = ""
) -> PoolShape:
    """Let it grow or shrink, at once; it is kept and outlives a restart. For the installation's
    admins."""
    return _show(await given.pools.change(who, provider, template, wanted.size))


def _show(state: PoolState) -> PoolShape:
    return PoolShape(
        template=state.template,
        provider=state.provider,
        size=state.size,
        source=state.source,
        kept=state.kept,
        ready=state.ready,
    )
