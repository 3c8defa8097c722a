"""Whether other processes have the same PostgreSQL database open, by a lock that they share."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncpg

from paddock.adapters.store.postgres_faults import DRIVER

_log = logging.getLogger(__name__)
_LOCK = 0x70616470
_AGAIN_AFTER_S = 1.0
Connect = Callable[[], Awaitable[asyncpg.Connection]]


class Presence:
    """Shown from `begin` to `aclose`. The server ends it with the connection, so that a process
    that was killed is not taken for one that is there."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: asyncpg.Connection | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def begin(self) -> bool:
        """Whether nobody else was there."""
        lost = asyncio.Event()
        self._connection = await self._connected(lost)
        alone = bool(await self._connection.fetchval(f"SELECT pg_try_advisory_lock({_LOCK})"))
        await self._share(self._connection)
        if alone:
            await self._connection.execute(f"SELECT pg_advisory_unlock({_LOCK})")
        self._keeping = asyncio.create_task(self._keep(lost), name="presence in the database")
        return alone

    async def _keep(self, lost: asyncio.Event) -> None:
        """A server that was started again is told again."""
        while True:
            await lost.wait()
            try:
                lost = asyncio.Event()
                self._connection = await self._connected(lost)
                await self._share(self._connection)
            except DRIVER as error:
                _log.debug("presence not shown", extra={"error": str(error)})
                lost.set()
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def _connected(self, lost: asyncio.Event) -> asyncpg.Connection:
        connection = await self._connect()
        connection.add_termination_listener(lambda _: lost.set())
        return connection

    @staticmethod
    async def _share(connection: asyncpg.Connection) -> None:
        await connection.execute(f"SELECT pg_advisory_lock_shared({_LOCK})")

    async def aclose(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        if self._connection is not None:
            with suppress(*DRIVER):
                await self._connection.close()
