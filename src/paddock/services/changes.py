"""How a sandbox's record changes: one at a time, with its event and its audit entry."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from paddock.domain import tracing
from paddock.domain.audit import AuditEntry
from paddock.domain.errors import NotFound
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import is_id
from paddock.domain.records import SANDBOX_PREFIX, SandboxRecord, alive, app_in, event_of
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Page, SandboxFilter, Store, Transaction
from paddock.services.recall import Recall

_PAGE = 500
Step = Callable[[SandboxRecord], SandboxRecord]
Detail = Mapping[str, object] | Callable[[SandboxRecord, SandboxRecord], Mapping[str, object]]
"""What the audit log says; where it depends on it, of the record before and after."""


@dataclass(slots=True)
class _Held:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted_by: int = 0


class Changes:
    """Reads and changes of sandbox records, and the lock that their verbs take."""

    def __init__(self, store: Store, clock: Clock, recall: Recall) -> None:
        self._store = store
        self._recall = recall
        self._clock = clock
        self._locks: dict[str, _Held] = {}

    @asynccontextmanager
    async def alone(self, sandbox_id: str) -> AsyncIterator[None]:
        """One verb at a time per sandbox in this process; providers have locks of their own."""
        held = self._locks.setdefault(sandbox_id, _Held())
        held.wanted_by += 1
        try:
            async with held.lock:
                yield
        finally:
            held.wanted_by -= 1
            if not held.wanted_by:
                del self._locks[sandbox_id]

    async def find(self, team_id: str, name_or_id: str) -> SandboxRecord:
        """The team's sandbox; NotFound when there is none, or it is another team's."""
        if is_id(name_or_id, SANDBOX_PREFIX):
            found = await self._recall.get(name_or_id, team_id)
        else:
            found = await self._store.read(lambda tx: tx.sandboxes.get(team_id, name_or_id))
        if found is None:
            raise missing(name_or_id)
        tracing.note(tracing.SANDBOX, found.id)
        return found

    async def living(self, team_id: str, name_or_id: str) -> SandboxRecord:
        """As find(), for who wants to change it: Conflict when it was deleted."""
        return alive(await self.find(team_id, name_or_id))

    def forget(self, *sandbox_ids: str) -> None:
        """They were changed past us, and are read anew."""
        for each in sandbox_ids:
            self._recall.forget(each)

    async def each(self, wanted: SandboxFilter) -> AsyncIterator[SandboxRecord]:
        """Every team's sandboxes, page by page: for Paddock's own rounds."""
        after = ""
        while True:
            page = await self._store.read(partial(_page, wanted=wanted, after=after))
            for sandbox in page:
                yield sandbox
            if len(page) < _PAGE:
                return
            after = page[-1].id

    async def apply(
        self,
        sandbox_id: str,
        step: Step,
        principal: Principal,
        *,
        action: str = "",
        detail: Detail | None = None,
    ) -> SandboxRecord:
        """The record after `step`, which must be pure: it may be called again."""
        try:
            return await self._store.write(
                lambda tx: self.write(tx, sandbox_id, step, principal, action=action, detail=detail)
            )
        finally:
            self.forget(sandbox_id)

    def write(
        self,
        tx: Transaction,
        sandbox_id: str,
        step: Step,
        principal: Principal,
        *,
        action: str = "",
        detail: Detail | None = None,
    ) -> SandboxRecord:
        """The same together with something else; `forget` it afterwards."""
        current = tx.sandboxes.get(ANY_TEAM, sandbox_id)
        if current is None:
            raise missing(sandbox_id)
        changed = step(current)
        if changed == current:
            return current
        stored = tx.sandboxes.replace(changed)
        tx.events.append([_event(current, stored, principal.actor, self._clock.wall())])
        if action:
            told = detail(current, stored) if callable(detail) else detail or {}
            tx.audit.append([self.entry(principal, stored, action, told)])
        return stored

    def entry(
        self,
        principal: Principal,
        sandbox: SandboxRecord,
        action: str,
        detail: Mapping[str, object],
    ) -> AuditEntry:
        return AuditEntry(
            team_id=sandbox.team_id,
            actor=principal.actor,
            action=action,
            subject=sandbox.id,
            at=self._clock.wall(),
            detail={"name": sandbox.name, **detail},
        )


def _page(tx: Transaction, wanted: SandboxFilter, after: str) -> Sequence[SandboxRecord]:
    return tx.sandboxes.list(ANY_TEAM, wanted, Page(_PAGE, after))


def _event(before: SandboxRecord, after: SandboxRecord, actor: str, now: float) -> Event:
    if after.state is not before.state:
        return event_of(after, actor)
    data = {"state": after.state, "name": after.name, **app_in(after)}
    return Event(after.team_id, EventKind.SANDBOX_CHANGED, after.id, now, data, actor)


def missing(name_or_id: str) -> NotFound:
    return NotFound(
        f"there is no sandbox {name_or_id[:80]}", remediation="`paddock ls` shows those there are"
    )
