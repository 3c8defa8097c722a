"""Sandbox records that were read lately, so that what happens often need not ask the store."""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.domain.event import Event
from paddock.domain.records import SandboxRecord
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Store

_SHARED_S = 0.5
"""How long another process's change may go unnoticed where there are others."""
_MOST = 10_000
_ITS_OWN = "sandbox."


@dataclass(frozen=True, slots=True)
class _Known:
    sandbox: SandboxRecord
    at: float


class Recall:
    """What this process changed is read anew; what it did not is remembered."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._changes = 0
        store.on_events(self._hear)

    async def get(self, sandbox_id: str, team_id: str = ANY_TEAM) -> SandboxRecord | None:
        """Return a sandbox by ID, in any state.

        Another team's sandbox is never answered from the cache, but by the same query as an ID that
        does not exist. Otherwise the response time would reveal that it exists.
        """
        known = self._known.get(sandbox_id)
        if (
            known is not None
            and team_id in (ANY_TEAM, known.sandbox.team_id)
            and (not self._store.is_shared or self._clock.now() - known.at < _SHARED_S)
        ):
            return known.sandbox
        before, now = self._changes, self._clock.now()
        found = await self._store.read(lambda tx: tx.sandboxes.get(team_id, sandbox_id))
        # What was changed while it was being read is not what we hold.
        if found is not None and before == self._changes:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[sandbox_id] = _Known(found, now)
        return found

    def forget(self, sandbox_id: str) -> None:
        self._changes += 1
        self._known.pop(sandbox_id, None)

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            # What else happens to a sandbox, commands above all, changes nothing about it.
            if event.kind.startswith(_ITS_OWN):
                self.forget(event.subject)
