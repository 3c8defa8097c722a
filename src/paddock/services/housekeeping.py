"""Once in a while: what idles is kept, and what is old enough is forgotten, a little at a time."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from paddock.domain.errors import PaddockError
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.keeping import AutomaticSnapshots
from paddock.services.quarantine_cases import forget_leftovers
from paddock.services.task_cleaning import TaskCleaning
from paddock.services.team_images import TeamImages
from paddock.services.volumes import Volumes

_log = logging.getLogger(__name__)
_AT_ONCE = 1000
_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long what is kept, in seconds."""

    events_s: float = 30 * _DAY
    deleted_sandboxes_s: float = 30 * _DAY
    """Their previews say 410 instead of 404 for so long."""
    keys_s: float = _DAY
    """A request repeated later than this is a new one."""
    sign_ins_s: float = 30 * _DAY
    """Links and sessions, after they expired."""
    approvals_s: float = 30 * _DAY
    """After they were asked for."""
    tasks_s: float = 90 * _DAY
    """After they ended, with their messages and what their agents wrote. One stays for as long as
    its sandbox has what it made and nobody has taken that out."""
    ssh_s: float = 7 * _DAY
    """Who asks why they are not let in is told for so long that their access has expired."""


class Housekeeping:
    """Once an hour. The audit log is never touched."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        automatic: AutomaticSnapshots,
        *,
        volumes: Volumes,
        cleaning: TaskCleaning,
        images: TeamImages,
        retention: Retention | None = None,
        every_s: float = 3600.0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._automatic = automatic
        self._volumes = volumes
        self._cleaning = cleaning
        self._images = images
        self.retention = retention or Retention()
        """May be changed at any time."""
        self._every_s = every_s

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except PaddockError as error:
                _log.warning("retention not carried out", extra={"error": error.message})
            await self._clock.sleep(self._every_s)

    async def look(self) -> None:
        now, kept = self._clock.wall(), self.retention
        await self._all(lambda tx: tx.events.prune(now - kept.events_s, _AT_ONCE))
        await self._all(lambda tx: tx.keys.prune(now - kept.keys_s, _AT_ONCE))
        await self._all(lambda tx: tx.links.prune(now - kept.sign_ins_s, _AT_ONCE))
        await self._all(lambda tx: tx.sessions.prune(now - kept.sign_ins_s, _AT_ONCE))
        await self._all(lambda tx: tx.ssh.prune(now - kept.ssh_s, _AT_ONCE))
        await self._all(lambda tx: tx.approvals.prune(now - kept.approvals_s, _AT_ONCE))
        await self._cleaning.forget_old(now - kept.tasks_s)
        await self._all(lambda tx: tx.sandboxes.purge(now - kept.deleted_sandboxes_s, _AT_ONCE))
        await self._store.write(forget_leftovers)
        await self._automatic.look()
        await self._volumes.settle()
        await self._images.look()

    async def _all(self, some: Callable[[Transaction], int]) -> None:
        """In small transactions, so that nobody waits long for the writer."""
        while await self._store.write(some) == _AT_ONCE:
            pass
