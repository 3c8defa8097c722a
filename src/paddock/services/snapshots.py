"""Snapshots of a team's sandboxes: taken, listed, restored, let go."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from paddock.domain.errors import Conflict, PaddockError
from paddock.domain.event import EventKind
from paddock.domain.ids import new_ulid
from paddock.domain.keeping import Keeping
from paddock.domain.quarantine import check_evidence, check_open
from paddock.domain.records import (
    SandboxRecord,
    SnapshotRecord,
    check_same_owner,
    moved,
    taken,
)
from paddock.domain.sandbox import SandboxState
from paddock.domain.snapshot import SnapshotRef
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.provider import Ref
from paddock.ports.store import Page, Store
from paddock.services.changes import Changes
from paddock.services.guests import Guests
from paddock.services.making import Making
from paddock.services.providers import Providers
from paddock.services.system import system
from paddock.services.taking import Capture, Taking

_log = logging.getLogger(__name__)
_CAN_BE_TAKEN = (SandboxState.RUNNING, SandboxState.PAUSED, SandboxState.STOPPED)


class Snapshots:
    """The verbs of a snapshot."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        providers: Providers,
        *,
        changes: Changes,
        making: Making,
        guests: Guests,
    ) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers
        self._changes = changes
        self._making = making
        self._guests = guests
        self._taking = Taking(store, clock, providers)
        self.keeping = Keeping()
        """Of those that are taken by themselves; may be changed at any time."""

    async def keep(self, principal: Principal, sandbox: SandboxRecord) -> SnapshotRecord:
        """As an automatic one, for who holds the sandbox's lock and is about to change its disk."""
        wish = Capture(automatic=True, keep_s=self.keeping.kept_s)
        return await self._taking.take(principal, sandbox, wish)

    async def take(self, principal: Principal, sandbox_name: str, wish: Capture) -> SnapshotRecord:
        """Its disk at one moment, also while it runs."""
        principal.require(Scope.SNAPSHOTS_WRITE)
        wish.check()
        sandbox = await self._changes.find(principal.team_id, sandbox_name)
        async with self._changes.alone(sandbox.id):
            sandbox = await self._changes.find(principal.team_id, sandbox.id)
            check_open(sandbox.quarantine, sandbox.name, principal)
            if sandbox.state not in _CAN_BE_TAKEN:
                raise Conflict(
                    f"sandbox {sandbox.name} is {sandbox.state}; there is no disk to take",
                    remediation="take it while it is running, paused or stopped",
                )
            return await self._taking.take(principal, sandbox, wish)

    async def settle(self) -> None:
        """After a start: what was being taken when the last process ended is noted or given up."""
        await self._taking.settle(anyway=not self._store.is_shared or self._store.was_unused)

    async def look(self) -> None:
        """What other processes died at, and what providers may still have of what failed."""
        await self._taking.settle()
        await self._taking.sweep()

    async def restore(
        self, principal: Principal, sandbox_name: str, snapshot_name: str
    ) -> SandboxRecord:
        """The sandbox with the disk of the snapshot, under the same id and name.

        The new machine is made before the old one goes, and the old disk is kept as an automatic
        snapshot.
        """
        principal.require(Scope.SNAPSHOTS_WRITE)
        principal.require(Scope.SANDBOXES_WRITE)
        snapshot = await self.get(principal, snapshot_name)
        check_evidence(snapshot.quarantine, snapshot.name, principal)
        sandbox = await self._changes.find(principal.team_id, sandbox_name)
        async with self._changes.alone(sandbox.id):
            sandbox = await self._changes.find(principal.team_id, sandbox.id)
            check_open(sandbox.quarantine, sandbox.name, principal)
            check_same_owner(snapshot, sandbox.owner)
            _check_restorable(sandbox, snapshot)
            await self.keep(principal, sandbox)
            return await self._replace_machine(principal, sandbox, snapshot)

    async def _replace_machine(
        self, principal: Principal, sandbox: SandboxRecord, snapshot: SnapshotRecord
    ) -> SandboxRecord:
        provider = self._providers.get(sandbox.provider)
        spec = self._making.spec(sandbox, SnapshotRef(snapshot.provider, snapshot.ref))
        seen = await provider.create(f"{sandbox.id}-{new_ulid()}", spec)
        await self._making.begin(provider, sandbox, seen)
        await self._guests.forget(sandbox.id)

        def replaced(current: SandboxRecord) -> SandboxRecord:
            if current.state is SandboxState.RUNNING:
                return replace(current, ref=seen.ref.id, changed_at=self._clock.wall())
            now = self._clock.wall()
            return replace(moved(current, SandboxState.RUNNING, now), ref=seen.ref.id)

        detail = {"snapshot": snapshot.id}
        restored = await self._changes.apply(
            sandbox.id, replaced, principal, action="snapshot.restore", detail=detail
        )
        await provider.destroy(Ref(sandbox.provider, sandbox.ref))
        await self._store.write(
            lambda tx: self._taking.tell(
                tx,
                principal,
                snapshot,
                kind=EventKind.SNAPSHOT_RESTORED,
                data={"sandbox": sandbox.id},
            )
        )
        return restored

    async def remove_expired(self) -> int:
        """Retention: what may go by now goes; how many there were."""
        now = self._clock.wall()
        expired = await self._store.read(lambda tx: tx.snapshots.expired(now, 100))
        gone = 0
        for snapshot in expired:
            try:
                await self.delete(system(snapshot.team_id, "retention"), snapshot.id)
                gone += 1
            except PaddockError as error:  # which keeps none of the others
                details = {"id": snapshot.id, "error": error.message}
                _log.warning("expired snapshot not removed", extra=details)
        return gone

    async def get(self, principal: Principal, name: str) -> SnapshotRecord:
        principal.require(Scope.SNAPSHOTS_READ)
        found = await self._store.read(lambda tx: tx.snapshots.get(principal.team_id, name))
        return taken(found, name)

    async def list(
        self, principal: Principal, sandbox_name: str, page: Page
    ) -> Sequence[SnapshotRecord]:
        """Of one sandbox, also of one that is gone, or all when none is named."""
        principal.require(Scope.SNAPSHOTS_READ)
        sandbox_id = ""
        if sandbox_name:
            sandbox_id = (await self._changes.find(principal.team_id, sandbox_name)).id
        return await self._store.read(
            lambda tx: tx.snapshots.list(principal.team_id, sandbox_id, page)
        )

    async def delete(self, principal: Principal, name: str) -> None:
        """Sandboxes made of it are not touched. Gone is NotFound: a name may have been mistyped."""
        principal.require(Scope.SNAPSHOTS_WRITE)
        found = await self._store.read(lambda tx: tx.snapshots.get(principal.team_id, name))
        snapshot = taken(found, name)
        check_evidence(snapshot.quarantine, snapshot.name, principal, letting_go=True)
        await self._taking.let_go(principal, snapshot)


def _check_restorable(sandbox: SandboxRecord, snapshot: SnapshotRecord) -> None:
    if snapshot.provider != sandbox.provider:
        raise Conflict(
            f"snapshot {snapshot.name} is on provider {snapshot.provider}, "
            f"sandbox {sandbox.name} on {sandbox.provider}",
            remediation="create a new sandbox of the snapshot instead",
        )
    if snapshot.quarantine is not None and sandbox.quarantine is None:
        raise Conflict(
            f"snapshot {snapshot.name} is evidence, and sandbox {sandbox.name} was not set aside",
            remediation="create a new sandbox of the snapshot instead, which is set aside as well",
        )
    if sandbox.state not in _CAN_BE_TAKEN or not sandbox.ref:
        raise Conflict(
            f"sandbox {sandbox.name} is {sandbox.state} and cannot be restored",
            remediation="create a new sandbox of the snapshot instead",
        )
