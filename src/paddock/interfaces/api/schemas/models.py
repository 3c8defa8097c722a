"""Routes to model APIs, what went over them, and what that costs."""

from typing import Annotated

from pydantic import Field

from paddock.domain.broker.binding import url_inside
from paddock.domain.broker.models import Price, Prices
from paddock.interfaces.api.schemas.common import Shape, Text
from paddock.services.broker import ModelStanding

_Dollars = Annotated[float, Field(ge=0, le=100_000)]


class PriceShape(Shape):
    """Dollars for a million tokens."""

    input: _Dollars
    output: _Dollars
    cache_read: _Dollars
    cache_write: _Dollars


class PriceTable(Shape):
    """By the beginning of a model's name; the longest that fits counts, `*` for all others."""

    prices: dict[Annotated[str, Field(min_length=1, max_length=200)], PriceShape]
    as_of: Annotated[
        Text, Field(max_length=40, description="when they held, as who wrote them down says")
    ] = ""
    note: Annotated[Text, Field(max_length=500, description="where they come from")] = ""

    def read(self) -> Prices:
        table = {model: Price(**dict(each)) for model, each in self.prices.items()}
        return Prices(table, self.as_of, self.note)


class RouteShape(Shape):
    """Where a sandbox finds a model API."""

    route: str
    variable: str = Field(description="that clients read the base URL from")
    url: str = Field(description="inside the sandbox")
    base_url: str = Field(description="outside of it")
    spend_limit_usd: float | None


class ModelUsageShape(Shape):
    """What was taken of one model."""

    route: str
    model: str
    requests: int
    input_tokens: int = Field(description="without those that came from a cache")
    output_tokens: int
    reasoning_tokens: int = Field(description="of the output, what was thought")
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float
    guessed: bool = Field(description="the API did not say how many tokens some of it were")
    assumed_price: bool = Field(
        description="the table had no price for the model, so it counted as `*`: as if it were dear"
    )


class ModelsShape(Shape):
    """What a sandbox, or all of its task, took of model APIs."""

    account: str = Field(description="`sandbox …`, or `task …` where it is labelled with one")
    spent_usd: float
    routes: list[RouteShape]
    used: list[ModelUsageShape]


def show_models(standing: ModelStanding) -> ModelsShape:
    return ModelsShape(
        account=standing.account.partition("/")[2],
        spent_usd=round(sum(each.cost_usd for each in standing.used), 6),
        routes=[
            RouteShape(
                route=each.route,
                variable=url_inside(each)[0],
                url=url_inside(each)[1],
                base_url=each.base_url,
                spend_limit_usd=each.spend_limit_usd,
            )
            for each in standing.routes
        ],
        used=[
            ModelUsageShape(
                route=each.route,
                model=each.model,
                requests=each.requests,
                input_tokens=each.tokens.input,
                output_tokens=each.tokens.output,
                reasoning_tokens=each.tokens.reasoning,
                cache_read_tokens=each.tokens.cache_read,
                cache_write_tokens=each.tokens.cache_write,
                cost_usd=round(each.cost_usd, 6),
                guessed=each.guessed,
                assumed_price=each.assumed,
            )
            for each in standing.used
        ],
    )


def show_prices(prices: Prices) -> PriceTable:
    return PriceTable(
        prices={
            model: PriceShape(
                input=each.input,
                output=each.output,
                cache_read=each.cache_read,
                cache_write=each.cache_write,
            )
            for model, each in sorted(prices.table.items())
        },
        as_of=prices.as_of,
        note=prices.note,
    )
