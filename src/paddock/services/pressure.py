"""Keeps the host from running out of memory: who has to go when it gets short."""

import logging
from collections.abc import Awaitable, Callable

from paddock.domain.errors import PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.pressure import Band, Candidate, Memory, band, victims
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.ports.clock import Clock
from paddock.ports.host import HostMemory
from paddock.ports.provider import Ref
from paddock.ports.store import SandboxFilter, Store, Transaction
from paddock.services.activity import JUST_NOW_S, Activity
from paddock.services.changes import Changes
from paddock.services.providers import Providers
from paddock.services.sandboxes import Sandboxes
from paddock.services.system import operating_team, system

_log = logging.getLogger(__name__)
_MIB = 1 << 20
Told = Callable[[Band], Awaitable[None]]
"""Who wants to know of a new band before anybody's sandbox is stopped for it."""


class Pressure:
    """Looks at the host's memory from time to time, and stops sandboxes when it gets short."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        memory: HostMemory,
        *,
        changes: Changes,
        sandboxes: Sandboxes,
        providers: Providers,
        activity: Activity,
        here: frozenset[str],
        every_s: float = 5.0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._memory = memory
        self._changes = changes
        self._sandboxes = sandboxes
        self._providers = providers
        self._activity = activity
        self._here = here
        """Names of the providers whose sandboxes use this host's memory."""
        self._every_s = every_s
        self.band = Band.NORMAL
        self.told: list[Told] = []

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except PaddockError as error:
                _log.warning("memory not looked at", extra={"error": error.message})
            await self._clock.sleep(self._every_s)

    async def look(self) -> None:
        memory = self._memory()
        found = band(memory, self.band)
        changed, self.band = found is not self.band, found
        if changed:
            await self._tell(found, memory)
            for tell in self.told:
                await tell(found)
        if found is Band.NORMAL:
            return
        for victim in victims(await self._candidates(), found, memory):
            await self._evict(victim, memory)

    async def _candidates(self) -> list[Candidate]:
        wanted = SandboxFilter(states=frozenset({SandboxState.RUNNING}))
        found: list[Candidate] = []
        async for sandbox in self._changes.each(wanted):
            if sandbox.provider not in self._here:
                continue
            try:
                found.append(await self._candidate(sandbox))
            except PaddockError as error:  # what it uses is not known, so nobody is helped
                details = {"id": sandbox.id, "error": error.message}
                _log.warning("memory of a sandbox not measured", extra=details)
        return found

    async def _candidate(self, sandbox: SandboxRecord) -> Candidate:
        provider = self._providers.get(sandbox.provider)
        used = None
        if provider.capabilities.metrics:
            used = (await provider.usage(Ref(sandbox.provider, sandbox.ref))).memory_bytes
        active_at = self._activity.known(sandbox.id, sandbox.clock.active_at)
        elsewhere = self._store.is_shared and self._clock.wall() - active_at < JUST_NOW_S
        return Candidate(
            id=sandbox.id,
            active_at=active_at,
            memory_mib=(used or 0) / _MIB,
            working=bool(self._activity.doing(sandbox.id)) or elsewhere,
            always_on=sandbox.lifetime.always_on,
        )

    async def _evict(self, victim: Candidate, memory: Memory) -> None:
        detail = f"the host had {memory.free_percent:.0f} % of its memory left"
        try:
            sandbox = await self._changes.find("", victim.id)
            principal = system(sandbox.team_id, "pressure")
            await self._sandboxes.stop(principal, sandbox.id, Reason.EVICTED, detail)
        except PaddockError as error:
            _log.warning("not evicted", extra={"id": victim.id, "error": error.message})

    async def _tell(self, found: Band, memory: Memory) -> None:
        data = {"band": found.name.lower(), "free_percent": round(memory.free_percent, 1)}
        now = self._clock.wall()

        def tell(tx: Transaction) -> None:
            if team := operating_team(tx):
                kind, actor = EventKind.PRESSURE_CHANGED, "paddock/pressure"
                tx.events.append([Event(team.id, kind, "host", now, data, actor)])

        await self._store.write(tell)
