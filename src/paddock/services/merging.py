"""Several streams as one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
_WAITING = 64


@dataclass(frozen=True, slots=True)
class _End:
    error: Exception | None = None


@asynccontextmanager
async def merged(*sources: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Every item as it comes; the first error of any source ends all of them.

    A slow reader holds the sources back.
    """
    queue: asyncio.Queue[T | _End] = asyncio.Queue(_WAITING)
    pumps = [asyncio.create_task(_pump(source, queue)) for source in sources]
    try:
        yield _drain(queue, len(pumps))
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(source: AsyncIterator[T], queue: "asyncio.Queue[T | _End]") -> None:
    end = _End()
    try:
        async for item in source:
            await queue.put(item)
    except Exception as error:  # noqa: BLE001 - raised again where the items are read
        end = _End(error)
    await queue.put(end)


async def _drain(queue: "asyncio.Queue[T | _End]", sources: int) -> AsyncIterator[T]:
    while sources:
        item = await queue.get()
        if not isinstance(item, _End):
            yield item
        elif item.error is not None:
            raise item.error
        else:
            sources -= 1
