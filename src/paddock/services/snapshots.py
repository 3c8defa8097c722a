"""Snapshots of a team's sandboxes: taken, listed, restored, let go."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from paddock.domain import names
from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Conflict, InvalidRequest, NotFound, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_id, new_ulid
from paddock.domain.ignoring import Ignoring, decide
from paddock.domain.keeping import Keeping
from paddock.domain.records import (
    SNAPSHOT_PREFIX,
    SandboxRecord,
    SnapshotRecord,
    app_in,
    check_name,
    check_same_owner,
    moved,
)
from paddock.domain.sandbox import SandboxState
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.provider import Ref
from paddock.ports.store import ANY_TEAM, Page, Store, Transaction
from paddock.services.changes import Changes
from paddock.services.guests import Guests
from paddock.services.ignoring import rules_of
from paddock.services.making import Making
from paddock.services.providers import Providers
from paddock.services.system import system

_log = logging.getLogger(__name__)
MOST_KEPT_S = 100 * 365 * 86400.0
_CAN_BE_TAKEN = (SandboxState.RUNNING, SandboxState.PAUSED, SandboxState.STOPPED)


@dataclass(frozen=True, slots=True)
class Capture:
    """How a snapshot shall be taken."""

    name: str = ""
    memory: bool = False
    automatic: bool = False
    keep_s: float | None = None
    key: str = ""
    """The same key is the same snapshot."""
    everything: bool = False
    """Whatever the template's rules leave out."""

    @property
    def terms(self) -> str:
        """What one key can stand for only once."""
        terms = f"{self.name} {self.memory} {self.keep_s}"
        return f"{terms} everything" if self.everything else terms


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
        self.keeping = Keeping()
        """Of those that are taken by themselves; may be changed at any time."""

    async def keep(self, principal: Principal, sandbox: SandboxRecord) -> SnapshotRecord:
        """As an automatic one, for who holds the sandbox's lock and is about to change its disk."""
        wish = Capture(automatic=True, keep_s=self.keeping.kept_s)
        return await self._take(principal, sandbox, wish)

    async def take(self, principal: Principal, sandbox_name: str, wish: Capture) -> SnapshotRecord:
        """Its disk at one moment, also while it runs."""
        principal.require(Scope.SNAPSHOTS_WRITE)
        if wish.keep_s is not None and not 0 < wish.keep_s <= MOST_KEPT_S:
            raise InvalidRequest(
                f"keep_s is {wish.keep_s:g}; it must be more than 0 and at most {MOST_KEPT_S:g}",
                remediation="leave it out for a snapshot that is kept until it is removed",
            )
        sandbox = await self._changes.find(principal.team_id, sandbox_name)
        async with self._changes.alone(sandbox.id):
            sandbox = await self._changes.find(principal.team_id, sandbox.id)
            if sandbox.state not in _CAN_BE_TAKEN:
                raise Conflict(
                    f"sandbox {sandbox.name} is {sandbox.state}; there is no disk to take",
                    remediation="take it while it is running, paused or stopped",
                )
            return await self._take(principal, sandbox, wish)

    async def _take(
        self, principal: Principal, sandbox: SandboxRecord, wish: Capture
    ) -> SnapshotRecord:
        now = self._clock.wall()
        record = replace(_begun(sandbox, wish, now), ignoring=await self._decide(sandbox, wish))

        def enter(tx: Transaction) -> SnapshotRecord:
            if wish.key:
                claimed = tx.keys.claim(
                    record.team_id,
                    wish.key,
                    fingerprint=f"snapshot {sandbox.id} {wish.terms}",
                    object_id=record.id,
                    now=now,
                )
                if claimed != record.id and (found := tx.snapshots.get(record.team_id, claimed)):
                    return found
            tx.snapshots.add(record)
            return record

        record = await self._store.write(enter)
        if record.ref:
            return record
        return await self._finish(principal, sandbox, record, memory=wish.memory)

    async def _decide(self, sandbox: SandboxRecord, wish: Capture) -> Ignoring:
        return decide(
            await rules_of(self._providers, sandbox),
            asked=wish.everything,
            automatic=wish.automatic,
            memory=wish.memory,
            able=self._providers.get(sandbox.provider).capabilities.snapshot_ignore,
        )

    async def _finish(
        self,
        principal: Principal,
        sandbox: SandboxRecord,
        record: SnapshotRecord,
        *,
        memory: bool,
    ) -> SnapshotRecord:
        """Named by our id at the provider, so that a retry after a crash finds it again."""
        provider = self._providers.get(sandbox.provider)
        try:
            ref, rules = Ref(sandbox.provider, sandbox.ref), record.ignoring.applied
            taken = await provider.snapshot(ref, record.id, memory=memory, ignore=rules)
        except BaseException:
            await self._store.write(lambda tx: _undo(tx, record))
            raise
        return await self._noted(principal, record, taken)

    async def _noted(
        self, principal: Principal, record: SnapshotRecord, taken: Snapshot
    ) -> SnapshotRecord:
        ignoring = replace(record.ignoring, left_out=taken.left_out)
        done = replace(record, ref=taken.ref.id, size_bytes=taken.size_bytes, ignoring=ignoring)

        def write(tx: Transaction) -> SnapshotRecord:
            tx.snapshots.replace(done)
            data = {"name": done.name, "sandbox": done.sandbox_id, "automatic": done.automatic}
            if taken.left_out.count:
                data["left_out"] = taken.left_out.count
            self._log(tx, principal, done, kind=EventKind.SNAPSHOT_CREATED, data=data)
            return done

        return await self._store.write(write)

    async def settle(self) -> None:
        """After a start: what was being taken when the last process ended is noted or given up."""
        if not self._store.was_unused:
            return  # another process may be at it
        after = ""
        while page := await self._store.read(partial(_page, after=after)):
            for record in page:
                if not record.ref:
                    await self._settle(record)
            after = page[-1].id

    async def _settle(self, record: SnapshotRecord) -> None:
        try:
            provider = self._providers.get(record.provider)
            taken = [each async for each in provider.snapshots() if each.key == record.id]
        except PaddockError as error:
            _log.warning("snapshot not settled", extra={"id": record.id, "error": error.message})
        else:
            if taken:
                await self._noted(system(record.team_id, "reconciler"), record, taken[0])
            else:
                await self._store.write(lambda tx: _undo(tx, record))

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
        sandbox = await self._changes.find(principal.team_id, sandbox_name)
        async with self._changes.alone(sandbox.id):
            sandbox = await self._changes.find(principal.team_id, sandbox.id)
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
            lambda tx: self._log(
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
        for snapshot in expired:
            await self.delete(system(snapshot.team_id, "retention"), snapshot.id)
        return len(expired)

    async def get(self, principal: Principal, name: str) -> SnapshotRecord:
        principal.require(Scope.SNAPSHOTS_READ)
        found = await self._store.read(lambda tx: tx.snapshots.get(principal.team_id, name))
        if found is None or not found.ref:
            raise _missing(name)
        return found

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
        if found is None:
            raise _missing(name)
        if found.ref:
            provider = self._providers.get(found.provider)
            await provider.delete_snapshot(SnapshotRef(found.provider, found.ref))

        def remove(tx: Transaction) -> None:
            tx.snapshots.remove(found.id)
            self._log(
                tx, principal, found, kind=EventKind.SNAPSHOT_DELETED, data={"name": found.name}
            )

        await self._store.write(remove)

    def _log(
        self,
        tx: Transaction,
        principal: Principal,
        snapshot: SnapshotRecord,
        *,
        kind: EventKind,
        data: dict[str, object],
    ) -> None:
        now, actor = self._clock.wall(), principal.actor
        told = {**data, **app_in(snapshot)}
        tx.events.append([Event(snapshot.team_id, kind, snapshot.id, now, told, actor)])
        tx.audit.append([AuditEntry(snapshot.team_id, actor, kind, snapshot.id, now, data)])


def _check_restorable(sandbox: SandboxRecord, snapshot: SnapshotRecord) -> None:
    if snapshot.provider != sandbox.provider:
        raise Conflict(
            f"snapshot {snapshot.name} is on provider {snapshot.provider}, "
            f"sandbox {sandbox.name} on {sandbox.provider}",
            remediation="create a new sandbox of the snapshot instead",
        )
    if sandbox.state not in _CAN_BE_TAKEN or not sandbox.ref:
        raise Conflict(
            f"sandbox {sandbox.name} is {sandbox.state} and cannot be restored",
            remediation="create a new sandbox of the snapshot instead",
        )


def _page(tx: Transaction, after: str) -> Sequence[SnapshotRecord]:
    return tx.snapshots.list(ANY_TEAM, "", Page(500, after))


def _undo(tx: Transaction, record: SnapshotRecord) -> None:
    tx.snapshots.remove(record.id)
    tx.keys.release(record.team_id, record.id)


def _begun(sandbox: SandboxRecord, wish: Capture, now: float) -> SnapshotRecord:
    """What is written down before it is taken."""
    return SnapshotRecord(
        id=new_id(SNAPSHOT_PREFIX),
        team_id=sandbox.team_id,
        name=check_name(wish.name) if wish.name else names.invent(),
        provider=sandbox.provider,
        created_at=now,
        sandbox_id=sandbox.id,
        template=sandbox.template,
        resources=sandbox.resources,
        labels=sandbox.labels,
        env=sandbox.env,
        ports=sandbox.ports,
        command_policy=sandbox.command_policy,
        automatic=wish.automatic,
        expires_at=None if wish.keep_s is None else now + wish.keep_s,
        owner=sandbox.owner,
        app=sandbox.app,
    )


def _missing(name: str) -> NotFound:
    return NotFound(
        f"there is no snapshot {name[:80]}",
        remediation="`paddock snapshot list` shows those there are",
    )
