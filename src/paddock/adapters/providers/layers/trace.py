"""Each call of a provider as a part of the request that made it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from paddock.adapters.providers.layers.layered import Call
from paddock.domain import tracing

T = TypeVar("T")


class Trace:
    """Tells the trace of the moment, if there is one. Arguments are nobody's business."""

    async def around(self, call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        with tracing.span(f"provider {call.operation}", provider=call.provider):
            return await proceed()
