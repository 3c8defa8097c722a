"""Connections that are open as long as their event loop, or as somebody is there to use them."""

import asyncio
import weakref
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass

import aiohttp

from paddock.interfaces.client.peer import OwnConnector

_MOST = 256
_KEPT_S = 30

_Held = AsyncGenerator[aiohttp.ClientSession, None]


@dataclass(frozen=True, slots=True)
class Pool:
    """Those of one event loop."""

    loop: asyncio.AbstractEventLoop
    session: aiohttp.ClientSession
    _held: _Held
    _let_go: "weakref.finalize[[asyncio.AbstractEventLoop, _Held], object]"

    @classmethod
    async def opened(cls, user: object, owner: int | None = None) -> "Pool":
        """It closes with its loop, or when nobody has the user any more. With an `owner` it
        connects only to servers of this uid.

        What waits for the user's end keeps the session: were both collected together, in a circle
        of references, the session would complain that nobody had closed it.
        """
        loop, held = asyncio.get_running_loop(), _session(owner)
        session = await anext(held)
        let_go = weakref.finalize(user, _close_soon, loop, held)
        let_go.atexit = False
        return cls(loop, session, held, let_go)

    async def close(self) -> None:
        """At once, from its own loop."""
        self._let_go.detach()
        await self._held.aclose()

    def close_soon(self) -> None:
        """From wherever."""
        self._let_go()


async def _session(owner: int | None) -> _Held:
    """Held by a generator, because an event loop ends those that nobody has ended (PEP 525)."""
    if owner is None:
        connector = aiohttp.TCPConnector(limit=_MOST, keepalive_timeout=_KEPT_S)
    else:
        connector = OwnConnector(owner, limit=_MOST, keepalive_timeout=_KEPT_S)
    # A compressed answer saves nothing on a loopback and delays streams.
    headers = {"accept-encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, auto_decompress=False, read_bufsize=1 << 18
    ) as session:
        yield session


def _close_soon(loop: asyncio.AbstractEventLoop, held: _Held) -> None:
    with suppress(RuntimeError):  # the loop was closed, and has ended it
        loop.call_soon_threadsafe(lambda: loop.create_task(held.aclose()))
