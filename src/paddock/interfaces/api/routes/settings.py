"""`/v1/settings`: what is in effect, and what can be changed while everything runs."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.schemas.common import ListOf, Shape
from paddock.services.settings import Origin, Setting

router = APIRouter(prefix="/v1/settings", tags=["settings"])
Key = Annotated[str, Field(max_length=200)]
Value = StrictBool | StrictInt | StrictFloat | StrictStr | None


class SettingShape(Shape):
    """One setting as it is in effect. No secret is among them."""

    key: str
    value: Any
    source: Origin
    hot: bool = Field(description="it can be changed here, and takes effect at once")


class ChangeSettings(Shape):
    """What shall be different; all of it or nothing."""

    values: Annotated[
        dict[Key, Value],
        Field(max_length=100, examples=[{"server.requests_per_second": 100}]),
    ] = Field(default_factory=dict)
    reset: Annotated[
        list[Key], Field(max_length=100, description="back to what the configuration says")
    ] = Field(default_factory=list)


@router.get("")
async def list_settings(given: Given, who: Who) -> ListOf[SettingShape]:
    """Everything that is in effect, and where it comes from. A team that does not run the
    installation sees what its own work meets: limits, lifetimes, and the addresses it is reached
    at."""
    return _show(await given.settings.list(who))


@router.patch("")
async def change(given: Given, who: Who, wanted: ChangeSettings) -> ListOf[SettingShape]:
    """Change hot settings. They are kept, and outlive a restart."""
    return _show(await given.settings.change(who, wanted.values, wanted.reset))


def _show(settings: Sequence[Setting]) -> ListOf[SettingShape]:
    items = [
        SettingShape(key=each.key, value=each.value, source=each.source, hot=each.hot)
        for each in settings
    ]
    return ListOf[SettingShape](items=items, next_cursor=None)
