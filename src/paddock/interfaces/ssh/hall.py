"""Who is in: looked through now and then for those whose access has been ended."""

import asyncio
import logging
from typing import TYPE_CHECKING

from paddock.domain.errors import PaddockError
from paddock.services.ssh_access import SshAccesses

if TYPE_CHECKING:
    from paddock.interfaces.ssh.visitor import Visitor

_log = logging.getLogger(__name__)


class Hall:
    """All visitors that were let in."""

    def __init__(self, accesses: SshAccesses, look_every_s: float) -> None:
        self._accesses = accesses
        self._look_every_s = look_every_s
        self._visitors: set[Visitor] = set()

    def came(self, visitor: "Visitor") -> None:
        self._visitors.add(visitor)

    def left(self, visitor: "Visitor") -> None:
        self._visitors.discard(visitor)

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._look_every_s)
            try:
                await self.look()
            except PaddockError as error:
                _log.warning("visitors by ssh not looked at", extra={"error": error.message})

    async def look(self) -> None:
        """Send away those whose access, token or sandbox is not there any more."""
        pairs = [(each, each.admitted) for each in self._visitors if each.admitted is not None]
        if not pairs:
            return
        reasons = await self._accesses.still([admitted for _, admitted in pairs])
        for (visitor, _), why in zip(pairs, reasons, strict=True):
            if why is not None:
                visitor.send_away(why.message)

    async def close(self, within_s: float) -> None:
        """Everybody leaves; what runs for them is hung up before anything else is closed."""
        visitors = list(self._visitors)
        sessions = [session for each in visitors for session in each.sessions]
        tasks = {session.task for session in sessions if session.task is not None}
        for visitor in visitors:
            visitor.send_away("the server is stopping")
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=within_s)
            for task in late:
                task.cancel()
