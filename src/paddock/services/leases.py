"""Which of several processes on one database is at something that one of them has to finish."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from paddock.domain.errors import PaddockError
from paddock.domain.ids import new_id
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction

_log = logging.getLogger(__name__)
LASTS_S = 30.0
_RENEWED = 3
"""How often in its time: one that comes late, or once not at all, loses nothing."""


class Leases:
    """Who is at something says so again and again; who has been silent for too long is taken for
    dead. Clocks that differ can let two be at it for a moment, so what is done under a lease has
    to be something that can be done twice."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._mine = new_id("prc")

    def take(self, tx: Transaction, name: str, *, anyway: bool = False) -> bool:
        """Whether it is this process's from now on."""
        now = self._clock.wall()
        found: Any = tx.values.get(_value(name))
        if found and not anyway and found["by"] != self._mine and found["until"] > now:
            return False
        tx.values.put(_value(name), {"by": self._mine, "until": now + LASTS_S})
        return True

    @asynccontextmanager
    async def kept(self, name: str) -> AsyncIterator[None]:
        """One that was taken is kept while the block lasts, and given back at its end."""
        renewing = asyncio.create_task(self._renew(name), name=f"lease of {name}")
        try:
            yield
        finally:
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing
            with suppress(PaddockError):  # then it lapses by itself
                await self._store.write(lambda tx: self._give_back(tx, name))

    async def _renew(self, name: str) -> None:
        while True:
            await self._clock.sleep(LASTS_S / _RENEWED)
            try:
                await self._store.write(lambda tx: self.take(tx, name))
            except PaddockError as error:
                _log.warning("lease not renewed", extra={"lease": name, "error": error.message})

    def _give_back(self, tx: Transaction, name: str) -> None:
        found: Any = tx.values.get(_value(name))
        if found and found["by"] == self._mine:
            tx.values.remove(_value(name))


def _value(name: str) -> str:
    return f"lease.{name}"
