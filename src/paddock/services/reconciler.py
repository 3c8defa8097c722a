"""Holds what is on record against what the providers have, and brings the two together."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from paddock.domain import names
from paddock.domain.errors import PaddockError
from paddock.domain.ids import is_id, new_id
from paddock.domain.lifetime import Clockwork
from paddock.domain.records import (
    INSTALLATION_LABEL,
    SANDBOX_LABEL,
    SANDBOX_PREFIX,
    SandboxRecord,
    event_of,
)
from paddock.domain.sandbox import SandboxState
from paddock.ports.clock import Clock
from paddock.ports.provider import Observation, Provider
from paddock.ports.store import ANY_TEAM, SandboxFilter, Store, Transaction
from paddock.services.changes import Changes
from paddock.services.making import Making
from paddock.services.providers import Providers
from paddock.services.sandboxes import Sandboxes
from paddock.services.snapshots import Snapshots
from paddock.services.system import operating_team, system
from paddock.services.verbs import put_out

TAKEN_IN = "found without a record and taken in"
_log = logging.getLogger(__name__)
_UNFINISHED = frozenset(SandboxState) - {SandboxState.DELETED}
MAKING_TAKES_AT_MOST_S = 300.0
ORPHAN_GRACE_S = 600.0
"""A sandbox without a record may be one whose record another process is about to write."""


Finish = Callable[[SandboxRecord], Awaitable[None]]


class Reconciler:
    """Once before the server listens, then every minute. A provider that is down is left alone."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        providers: Providers,
        *,
        changes: Changes,
        making: Making,
        sandboxes: Sandboxes,
        snapshots: Snapshots,
        installation: str,
        every_s: float = 60.0,
        orphan_grace_s: float = ORPHAN_GRACE_S,
    ) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers
        self._changes = changes
        self._making = making
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._installation = installation
        self._every_s = every_s
        self._orphan_grace_s = orphan_grace_s
        self._first = True
        """Nothing of this process is under way yet."""
        self._since = clock.wall()
        self._background: set[asyncio.Task[object]] = set()
        self.set_aside: Finish = _nothing_to_finish
        """Goes on with setting one aside."""

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._clock.sleep(self._every_s)
                try:
                    await self.look()
                except PaddockError as error:
                    _log.warning("not reconciled", extra={"error": error.message})
        finally:
            for task in self._background:
                task.cancel()

    async def look(self) -> None:
        """One round over all providers."""
        records: dict[str, list[SandboxRecord]] = defaultdict(list)
        async for record in self._changes.each(SandboxFilter(states=_UNFINISHED)):
            records[record.provider].append(record)
        for name, provider in self._providers:
            try:
                await self._compare(name, provider, records[name])
            except PaddockError as error:
                details = {"provider": name, "error": error.message}
                _log.warning("provider could not be compared", extra=details)
        await self._snapshots.look()
        self._first = False

    async def _compare(self, name: str, provider: Provider, records: list[SandboxRecord]) -> None:
        seen = {
            found.ref.id: found
            async for found in provider.find({INSTALLATION_LABEL: self._installation})
        }
        known = set()
        for record in records:
            known.add(record.ref)
            await self._settle(provider, record, seen.get(record.ref))
        making = {record.id for record in records if record.state is SandboxState.CREATING}
        for ref, found in seen.items():
            if ref not in known and found.labels.get(SANDBOX_LABEL) not in making:
                await self._take_in(name, provider, found)

    async def _settle(
        self, provider: Provider, record: SandboxRecord, seen: Observation | None
    ) -> None:
        principal = system(record.team_id, "reconciler")
        if record.quarantine is not None:
            self._go_on(self.set_aside(record), record)
        if record.state is SandboxState.CREATING:
            if not self._making.is_making(record.id) and self._is_abandoned(record):
                self._go_on(self._making.resume_making(record, principal), record)
        elif record.state is SandboxState.DELETING:
            self._go_on(self._sandboxes.delete(principal, record.id), record)
        elif record.state is SandboxState.FAILED:
            if seen is not None and seen.state is SandboxState.RUNNING:
                await self._see_again(provider, record)
            return
        elif seen is None or seen.state is not record.state:
            record = await self._sandboxes.refresh(principal, record)
        if record.state is SandboxState.RUNNING and record.task and record.quarantine is None:
            # Whoever woke it may have died over it; or it was only out of reach for a while.
            for first in self._making.wakings:
                self._go_on(first(record), record)

    async def _see_again(self, provider: Provider, record: SandboxRecord) -> None:
        """It was lost, and shows once more. Where another has taken its place, nothing is to go on
        in it; otherwise it is somebody's, and so is what is set aside."""
        if not record.task or record.quarantine is not None:
            return
        task = await self._store.read(lambda tx: tx.tasks.get(ANY_TEAM, record.task))
        if task is not None and any(each.sandbox_id == record.id for each in task.losses):
            self._go_on(put_out(provider, record), record)

    def _is_abandoned(self, record: SandboxRecord) -> bool:
        """Whether no other process can still be making it."""
        if not self._store.is_shared or (self._first and self._store.was_unused):
            return True
        return self._clock.wall() - record.created_at > MAKING_TAKES_AT_MOST_S

    def _go_on(self, work: Awaitable[object], record: SandboxRecord) -> None:
        async def attempt() -> None:
            try:
                await work
            except PaddockError as error:
                details = {"id": record.id, "state": record.state, "error": error.message}
                _log.warning("what was begun could not be finished", extra=details)

        task: asyncio.Task[object] = asyncio.create_task(attempt(), name=f"finish {record.id}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _take_in(self, name: str, provider: Provider, found: Observation) -> None:
        """What has no record: a leftover of one that is deleted, or was made on another provider
        in the end, goes; anything else is kept.

        Nobody's work is thrown away because a database was lost (promise 1).
        """
        sandbox_id = found.labels.get(SANDBOX_LABEL, "")
        record = await self._store.read(lambda tx: tx.sandboxes.get(ANY_TEAM, sandbox_id))
        if record is not None:
            is_here = record.provider == name and not record.is_gone
            if is_here and (record.ref == found.ref.id or self._is_awaited(found)):
                return  # it has taken the place of the one on record, or may be about to
            if not record.is_gone and not record.ref:
                return  # it is not known yet where it is
            _log.info("leftover removed", extra={"id": sandbox_id, "ref": found.ref.id})
            await provider.destroy(found.ref)
            return
        if not self._is_young(found):
            await self._adopt(name, found)

    def _is_awaited(self, found: Observation) -> bool:
        """Whether somebody may be about to write it down, of this process or of another."""
        had_nobody = self._first and (not self._store.is_shared or self._store.was_unused)
        if had_nobody and found.created_at < self._since:
            return False
        return self._is_young(found)

    def _is_young(self, found: Observation) -> bool:
        return self._clock.wall() - found.created_at < self._orphan_grace_s

    async def _adopt(self, name: str, found: Observation) -> None:
        now = self._clock.wall()
        sandbox_id = found.labels.get(SANDBOX_LABEL, "")

        def adopt(tx: Transaction) -> None:
            operators = operating_team(tx)
            if operators is None:
                return
            record = SandboxRecord(
                id=sandbox_id if is_id(sandbox_id, SANDBOX_PREFIX) else new_id(SANDBOX_PREFIX),
                team_id=operators.id,
                name=names.invent(),
                state=found.state,
                provider=name,
                created_at=found.created_at,
                changed_at=now,
                clock=Clockwork(active_at=now),
                ref=found.ref.id,
                template=found.template,
                resources=found.resources,
                detail=TAKEN_IN,
            )
            tx.sandboxes.add(record)
            event = event_of(record, "paddock/reconciler")
            tx.events.append([replace(event, at=now)])

        await self._store.write(adopt)


async def _nothing_to_finish(_sandbox: SandboxRecord) -> None:
    return
