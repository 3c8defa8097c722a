"""Whether somebody still waits for an answer: what is done only for them ends with them."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from paddock.domain.errors import Conflict

T = TypeVar("T")


class Caller:
    """Who has sent a request, and may go away before its answer."""

    def __init__(self, request: Request) -> None:
        self._request = request

    async def attend(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result; it is cancelled when the caller goes away first."""
        task, leaving = asyncio.create_task(work), asyncio.create_task(self._left())
        try:
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Conflict("the caller went away before there was an answer")
        finally:
            for each in (leaving, task):
                each.cancel()
            with suppress(asyncio.CancelledError):
                await leaving

    async def _left(self) -> None:
        """The body was read before: whatever is received now is the end of the connection."""
        while (await self._request.receive())["type"] != "http.disconnect":
            pass


async def caller(request: Request) -> Caller:
    return Caller(request)


Calling = Annotated[Caller, Depends(caller)]
