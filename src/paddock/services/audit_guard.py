"""Looks whether the audit log is as it was written: its end often, all of it once in a while."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from paddock.domain.audit import START, AuditEntry, Break, Head, Walk
from paddock.domain.errors import Broken, Forbidden, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.team import Principal, Scope
from paddock.ports.audit_head import AuditHead, Noted
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services.system import operating_team

_log = logging.getLogger(__name__)
_PAGE = 250
_MOST_PAGES = 20
"""In one look; the rest of a long log waits for the next."""
_MOST_LOST = 20


@dataclass(frozen=True, slots=True)
class ChainState:
    """What this process knows of the installation's chain."""

    head: Head
    at: float
    """When its end was last looked at."""
    whole_at: float
    """When all of it was; 0 while that is still under way."""
    breaks: int
    first: Break | None


class AuditGuard:
    """Each process looks by itself and notes the end for itself: whoever wants to cut the log off
    unseen has to find all of the notes. What it finds it tells; nothing is stopped by it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        noted: AuditHead,
        *,
        every_s: float = 5.0,
        whole_every_s: float = 3600.0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._file = noted
        self._every_s = every_s
        self._whole_every_s = whole_every_s
        self._noted = self._written = Noted()
        self._said = ""
        self._lost: Sequence[Break] = ()
        self._recent: Break | None = None
        """In what has come since all of it was last looked at."""
        self._walk: Walk | None = Walk()
        self._whole = Walk()
        self._whole_at = 0.0
        self._whole_due = 0.0
        self._verifying = asyncio.Lock()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["AuditGuard"]:
        """Begin with what was noted before, and note the end last of all."""
        found = await asyncio.to_thread(self._file.read)
        self._noted = self._written = found or Noted()
        await self._try()
        try:
            yield self
        finally:
            await self._try()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(self._every_s)
            await self._try()

    async def _try(self) -> None:
        try:
            await self.look()
        # Whatever somebody has done to the log, the server goes on.
        except Exception as error:  # noqa: BLE001
            why = error.message if isinstance(error, PaddockError) else repr(error)
            _log.warning("audit log not looked at", extra={"error": why})

    async def look(self) -> None:
        """At its end, and at some more of the rest."""
        self._noted = await self._follow()
        await self._go_on()
        await self._tell(self.state)
        if replace(self._noted, at=0.0) != replace(self._written, at=0.0):
            await asyncio.to_thread(self._file.write, self._noted)
            self._written = self._noted

    @property
    def state(self) -> ChainState:
        walks = [walk for walk in (self._walk, self._whole) if walk is not None]
        found = [*(walk.first for walk in walks), self._recent, *self._lost]
        first = min((each for each in found if each), key=lambda each: each.seq, default=None)
        counted = max(walk.breaks for walk in walks) or bool(self._recent)
        breaks = counted + len(self._lost)
        return ChainState(self._noted.head, self._noted.at, self._whole_at, breaks, first)

    async def verify(
        self, principal: Principal, *, everything: bool = False, expect: Head = START
    ) -> Walk:
        """All of the team's chain, or of the installation's, one at a time."""
        principal.require(Scope.AUDIT_READ)
        if everything and not principal.operator:
            raise Forbidden(
                "the installation's chain tells of every team",
                remediation="verify your team's, or use a token of the team that runs it",
            )
        team_id = ANY_TEAM if everything else principal.team_id
        walk = Walk(team=not everything, expect=expect)
        async with self._verifying:
            while not await self._step(walk, team_id):
                pass
        walk.end()
        for lost in self._lost if everything else ():
            walk.note(lost)
        return walk

    async def _follow(self) -> Noted:
        """What was noted has to be there still, and what came since has to follow it."""
        there = await self._store.read(lambda tx: tx.audit.head())
        before = (*self._noted.lost, *(() if self._noted.head == START else (self._noted.head,)))
        lost = [head for head in before if not await self._is_there(head)]
        self._lost = [_gone(head, there) for head in lost]
        if self._noted.head in lost or self._noted.head == START:
            head = there
            _log.info("end of the audit log noted anew", extra={"head": str(there)})
        else:
            head = await self._followed(self._noted.head)
        return replace(self._noted, head=head, at=self._clock.wall(), lost=tuple(lost[:_MOST_LOST]))

    async def _followed(self, head: Head) -> Head:
        walk = Walk(head)
        for _ in range(_MOST_PAGES):
            if await self._step(walk, ANY_TEAM):
                break
        self._recent = self._recent or walk.first
        return walk.head

    async def _is_there(self, head: Head) -> bool:
        try:
            found = await self._page(head.seq - 1, ANY_TEAM, 1)
        except Broken:
            return False
        return bool(found) and found[0].head == head

    async def _go_on(self) -> None:
        if self._walk is None and self._clock.now() >= self._whole_due:
            self._walk = Walk()
        if self._walk is None:
            return
        for _ in range(_MOST_PAGES):
            if await self._step(self._walk, ANY_TEAM):
                self._end(self._walk)
                return

    def _end(self, walk: Walk) -> None:
        self._whole, self._walk, self._recent = walk, None, None
        self._whole_at = self._clock.wall()
        self._whole_due = self._clock.now() + self._whole_every_s
        # Logs are most often kept elsewhere too: there, the head outlives what happens here.
        about = {"entries": walk.entries, "head": str(walk.head), "breaks": self.state.breaks}
        about |= {"redacted": walk.redacted, "accounted": walk.accounted}
        _log.info("audit log verified", extra=about)

    async def _step(self, walk: Walk, team_id: str) -> bool:
        """A page further; whether that was the last."""
        try:
            page = await self._page(walk.head.seq, team_id, _PAGE)
        except Broken as error:
            walk.note(Break(walk.head.seq + 1, f"from here on it cannot be read: {error.message}"))
            return True
        # Hashing a page takes as long as many requests.
        await asyncio.to_thread(walk.go, page)
        return len(page) < _PAGE

    async def _page(self, seq: int, team_id: str, limit: int) -> Sequence[AuditEntry]:
        return await self._store.read(lambda tx: tx.audit.after(seq, limit, team_id=team_id))

    async def _tell(self, state: ChainState) -> None:
        """Once, also over several starts; in the log of each process."""
        found = f"{state.breaks} {state.first}" if state.first else ""
        # What is not seen yet is not mended yet.
        if self._walk is not None and (not found or self._noted.told):
            return
        if found != self._said:
            self._say(state)
            self._said = found
        if found and found != self._noted.told:
            await self._store.write(lambda tx: _event(tx, state, self._clock.wall()))
        self._noted = replace(self._noted, told=found)

    def _say(self, state: ChainState) -> None:
        if state.first is None:
            _log.warning("audit log holds again", extra={"head": str(state.head)})
        else:
            _log.error("audit log does not hold", extra=_about(state.first, state.breaks))


def _event(tx: Transaction, state: ChainState, now: float) -> None:
    team = operating_team(tx)
    if team is None or state.first is None:
        return
    about = _about(state.first, state.breaks)
    tx.events.append([Event(team.id, EventKind.AUDIT_BROKEN, "audit", now, about, "paddock/audit")])


def _about(first: Break, breaks: int) -> dict[str, object]:
    return {"entry": first.seq, "problem": first.problem, "breaks": breaks}


def _gone(head: Head, there: Head) -> Break:
    if head.seq > there.seq:
        how = f"it is gone; the log ends at entry {there.seq}, so its end was cut off"
    else:
        how = f"it is another one than was noted ({head.hash}): from it on, the log was replaced"
    return Break(head.seq, how)
