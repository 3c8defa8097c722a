"""What went over routes to model APIs, and what that costs."""

from fastapi import APIRouter

from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.schemas.models import (
    ModelsShape,
    PriceTable,
    show_models,
    show_prices,
)

router = APIRouter(prefix="/v1", tags=["models"])


@router.get("/sandboxes/{sandbox}/models")
async def get_models(given: Given, who: Who, sandbox: str) -> ModelsShape:
    """The routes that a sandbox has, and what it or its task took so far, up to a second ago."""
    return show_models(await given.broker.models(who, sandbox))


@router.get("/models/prices")
async def get_prices(given: Given, who: Who) -> PriceTable:
    """What is counted with."""
    return show_prices(await given.broker.spending.table(who))


@router.put("/models/prices")
async def put_prices(given: Given, who: Who, wanted: PriceTable) -> PriceTable:
    """The whole table, from the next answer on. For operators."""
    return show_prices(await given.broker.spending.put_prices(who, wanted.read()))


@router.delete("/models/prices")
async def reset_prices(given: Given, who: Who) -> PriceTable:
    """The table that comes with Paddock is back. For operators."""
    return show_prices(await given.broker.spending.put_prices(who, None))
