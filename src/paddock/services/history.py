"""A sandbox's history, read from the log of events in either direction."""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.domain.event import Event
from paddock.domain.history import Step, first_steps, last_steps
from paddock.domain.team import Principal, Scope
from paddock.ports.store import Store, Transaction
from paddock.services.changes import Changes

_SCANNED = 5000
"""So many events are looked at for one page: what is periodic may be folded to almost nothing."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Some steps, and where those before and after them are."""

    steps: Sequence[Step]
    older: int | None
    """Ask for what is before this."""
    newer: int | None
    """Ask for what is after this."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to read: after an event, or before one."""

    limit: int
    after: int = 0
    before: int | None = None


class History:
    """What became of a sandbox, for people."""

    def __init__(self, store: Store, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    async def read(
        self, principal: Principal, name: str, place: Place, command: str = ""
    ) -> Chapter:
        """Steps in the order in which they happened; of one command only, if one is named."""
        principal.require(Scope.EVENTS_READ)
        sandbox = await self._changes.find(principal.team_id, name)

        def look(tx: Transaction) -> Sequence[Event]:
            if place.before is not None:
                return tx.events.before(place.before, _SCANNED, subject=sandbox.id)
            return tx.events.after(place.after, _SCANNED, subject=sandbox.id)

        found = await self._store.read(look)
        full = len(found) == _SCANNED
        events = [each for each in found if not command or each.data.get("command") == command]
        if place.before is not None:
            steps = last_steps(events, place.limit)
            cut = steps[0].first_seq if steps else (found[0].seq if found else 0)
            more = full or bool(found and found[0].seq < cut)
            return Chapter(steps, cut if more else None, place.before - 1)
        steps, last = first_steps(events, place.limit)
        cut_off = bool(events) and last < events[-1].seq
        last = last if cut_off else (found[-1].seq if found else place.after)
        older = steps[0].first_seq if steps and place.after else None
        return Chapter(steps, older, last if full or cut_off else None)
