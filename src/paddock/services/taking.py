"""How a snapshot comes to be, and goes: no failure leaves half a one, or none where one was."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from paddock.domain import names
from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Conflict, InvalidRequest, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_id
from paddock.domain.ignoring import Ignoring, decide
from paddock.domain.quota import MIB, Usage
from paddock.domain.records import (
    SNAPSHOT_PREFIX,
    SandboxRecord,
    SnapshotRecord,
    app_in,
    being_taken,
    check_snapshot_name,
)
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.provider import Ref
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services.ignoring import rules_of
from paddock.services.leases import Leases
from paddock.services.providers import Providers
from paddock.services.quotas import check_quota
from paddock.services.snapshot_sizes import estimate
from paddock.services.system import system

_log = logging.getLogger(__name__)
MOST_KEPT_S = 100 * 365 * 86400.0
_AT_ONCE = 500
_GIVEN_UP = "snapshot-given-up."
_LOOKED_FOR_S = 600.0
"""So long a provider may still come up with one that was given up."""


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
    replace: bool = False
    """The same sandbox's of that name goes, once the new one is there."""
    replace_any: bool = False
    """So does another sandbox's: whoever gives the name means the newest of it."""

    def check(self) -> None:
        if self.keep_s is not None and not 0 < self.keep_s <= MOST_KEPT_S:
            raise InvalidRequest(
                f"keep_s is {self.keep_s:g}; it must be more than 0 and at most {MOST_KEPT_S:g}",
                remediation="leave it out for a snapshot that is kept until it is removed",
            )
        if self.replace and not self.name:
            raise InvalidRequest(
                "a snapshot was asked to replace another, but no name says which",
                remediation="give the name of the one that shall be replaced",
            )

    @property
    def terms(self) -> str:
        """What one key can stand for only once."""
        terms = f"{self.name} {self.memory} {self.keep_s}"
        said = {
            " everything": self.everything,
            " replace": self.replace,
            " any": self.replace_any,
        }
        return terms + "".join(word for word, holds in said.items() if holds)


class Taking:
    """Each is written down before it is taken, and by whom: so that another process that finds it
    knows whether somebody is at it."""

    def __init__(self, store: Store, clock: Clock, providers: Providers) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers
        self._leases = Leases(store, clock)
        self._estimate = partial(estimate, store, providers)
        self._underway: set[str] = set()

    async def take(
        self, principal: Principal, sandbox: SandboxRecord, wish: Capture
    ) -> SnapshotRecord:
        """For who holds the sandbox's lock."""
        now = self._clock.wall()
        record = replace(
            _begun(sandbox, wish, now),
            ignoring=await self._decide(sandbox, wish),
            size_bytes=await self._estimate(sandbox, memory=wish.memory),
        )
        with self._busy(record.id):
            entered = await self._store.write(lambda tx: self._enter(tx, record, wish))
        if entered.ref:
            return entered
        with self._busy(entered.id):
            async with self._leases.kept(entered.id):
                return await self._finish(principal, sandbox, entered, memory=wish.memory)

    @contextmanager
    def _busy(self, snapshot_id: str) -> Iterator[None]:
        self._underway.add(snapshot_id)
        try:
            yield
        finally:
            self._underway.discard(snapshot_id)

    async def _decide(self, sandbox: SandboxRecord, wish: Capture) -> Ignoring:
        return decide(
            await rules_of(self._providers, sandbox),
            asked=wish.everything,
            automatic=wish.automatic,
            memory=wish.memory,
            able=self._providers.get(sandbox.provider).capabilities.snapshot_ignore,
        )

    def _enter(self, tx: Transaction, record: SnapshotRecord, wish: Capture) -> SnapshotRecord:
        if wish.key:
            claimed = tx.keys.claim(
                record.team_id,
                wish.key,
                fingerprint=f"snapshot {record.sandbox_id} {wish.terms}",
                object_id=record.id,
                now=record.created_at,
            )
            if claimed != record.id:
                return self._earlier(tx, record.team_id, claimed)
        if wish.name:
            record = _placed(tx, record, wish)
        # Until it is taken, its estimated size counts, so that several at once find no more room
        # than there is. Automatic snapshots and evidence count but are not refused, so that a quota
        # never loses work.
        if not record.automatic and record.quarantine is None:
            size_mib = max(1.0, (record.size_bytes or 0) / MIB)
            check_quota(tx, record.team_id, Usage(disk_mib=size_mib))
        tx.snapshots.add(record)
        self._leases.take(tx, record.id)
        return record

    def _earlier(self, tx: Transaction, team_id: str, snapshot_id: str) -> SnapshotRecord:
        """What the same request has made, or a process that is gone has begun to."""
        found = tx.snapshots.get(team_id, snapshot_id)
        if found is None:
            raise Conflict(
                f"this request has made snapshot {snapshot_id}, which has been removed since",
                remediation="use a new idempotency key to take another",
            )
        if not found.ref and (found.id in self._underway or not self._leases.take(tx, found.id)):
            raise being_taken(found)
        return found

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
            done, old = await self._noted(principal, record, taken)
        except BaseException:
            await self._store.write(lambda tx: self._give_up(tx, record))
            raise
        await self._retire(principal, old)
        return done

    async def _noted(
        self, principal: Principal, record: SnapshotRecord, taken: Snapshot
    ) -> tuple[SnapshotRecord, SnapshotRecord | None]:
        """It is there from now on, under its name; and the one that had the name until now."""
        done = replace(
            record,
            name=record.replacing or record.name,
            replacing="",
            replacing_any=False,
            ref=taken.ref.id,
            size_bytes=record.size_bytes if taken.size_bytes is None else taken.size_bytes,
            ignoring=replace(
                record.ignoring,
                left_out=taken.left_out,
                whole=taken.whole or record.ignoring.whole,
            ),
        )

        def write(tx: Transaction) -> SnapshotRecord | None:
            old = self._make_room(tx, record)
            tx.snapshots.replace(done)
            data = {"name": done.name, "sandbox": done.sandbox_id, "automatic": done.automatic}
            if taken.left_out.count:
                data["left_out"] = taken.left_out.count
            if old is not None:
                data["replaced"] = old.id
            self.tell(tx, principal, done, kind=EventKind.SNAPSHOT_CREATED, data=data)
            return old

        return done, await self._store.write(write)

    def _make_room(self, tx: Transaction, record: SnapshotRecord) -> SnapshotRecord | None:
        """The one in its place gives its name away, and its time is up: should this process end
        before it is deleted, retention deletes it."""
        old = tx.snapshots.get(record.team_id, record.replacing) if record.replacing else None
        if old is None:
            return None
        if not record.replacing_any:
            _check_same_sandbox(tx, old, record.sandbox_id)
        _check_gives_way(old)
        left = replace(old, name=names.invent(), expires_at=self._clock.wall())
        tx.snapshots.replace(left)
        return left

    async def _retire(self, principal: Principal, old: SnapshotRecord | None) -> None:
        try:
            if old is not None:
                await self.let_go(principal, old)
        except PaddockError as error:
            details = {"id": old.id if old else "", "error": error.message}
            _log.warning("replaced snapshot is left to retention", extra=details)

    def _give_up(self, tx: Transaction, record: SnapshotRecord) -> None:
        """But remember it: a provider that could not be heard may have taken it all the same."""
        current = tx.snapshots.get(ANY_TEAM, record.id)
        if current is not None and current.ref:
            return  # noted after all; only who asked was not told
        tx.snapshots.remove(record.id)
        tx.keys.release(record.team_id, record.id)
        left = {"provider": record.provider, "at": self._clock.wall()}
        tx.values.put(_GIVEN_UP + record.id, left)

    async def settle(self, *, anyway: bool = False) -> None:
        """What was being taken when its process ended is noted or given up; anyway: also what one
        that may be alive is at."""
        found = await self._store.read(lambda tx: tx.snapshots.unfinished(_AT_ONCE))
        for record in found:
            if record.id in self._underway:
                continue
            take_over = partial(self._taken_over, snapshot_id=record.id, anyway=anyway)
            if mine := await self._store.write(take_over):
                async with self._leases.kept(mine.id):
                    await self._settle(mine)

    def _taken_over(
        self, tx: Transaction, snapshot_id: str, *, anyway: bool
    ) -> SnapshotRecord | None:
        found = tx.snapshots.get(ANY_TEAM, snapshot_id)
        if found is None or found.ref or not self._leases.take(tx, found.id, anyway=anyway):
            return None
        return found

    async def _settle(self, record: SnapshotRecord) -> None:
        try:
            provider = self._providers.get(record.provider)
            taken = [each async for each in provider.snapshots() if each.key == record.id]
        except PaddockError as error:
            _log.warning("snapshot not settled", extra={"id": record.id, "error": error.message})
            return
        who = system(record.team_id, "reconciler")
        try:
            if taken:
                await self._retire(who, (await self._noted(who, record, taken[0]))[1])
                return
        except Conflict as error:
            _log.warning("snapshot given up", extra={"id": record.id, "error": error.message})
        await self._store.write(lambda tx: self._give_up(tx, record))

    async def sweep(self) -> None:
        """Delete at the providers what was given up here.

        By what was noted of each, not by what has no record: a lost database must not take the
        snapshots of everybody with it (promise 1).
        """
        found = await self._store.read(lambda tx: tx.values.all(_GIVEN_UP))
        for name, value in found.items():
            try:
                await self._sweep(name.removeprefix(_GIVEN_UP), value)
            except PaddockError as error:
                _log.warning("leftover not removed", extra={"id": name, "error": error.message})

    async def _sweep(self, snapshot_id: str, left: Any) -> None:
        provider = self._providers.get(left["provider"])
        if provider.capabilities.snapshot:
            found = [each async for each in provider.snapshots() if each.key == snapshot_id]
            for each in found:
                await provider.delete_snapshot(each.ref)
        if self._clock.wall() - left["at"] > _LOOKED_FOR_S:
            await self._store.write(lambda tx: tx.values.remove(_GIVEN_UP + snapshot_id))

    async def let_go(self, principal: Principal, snapshot: SnapshotRecord) -> None:
        """Its disk first: as long as there is one, the record says so."""
        provider = self._providers.get(snapshot.provider)
        await provider.delete_snapshot(SnapshotRef(snapshot.provider, snapshot.ref))

        def remove(tx: Transaction) -> None:
            tx.snapshots.remove(snapshot.id)
            data = {"name": snapshot.name}
            self.tell(tx, principal, snapshot, kind=EventKind.SNAPSHOT_DELETED, data=data)

        await self._store.write(remove)

    def tell(
        self,
        tx: Transaction,
        principal: Principal,
        snapshot: SnapshotRecord,
        *,
        kind: EventKind,
        data: Mapping[str, object],
    ) -> None:
        """In the events and in the audit log."""
        now, actor = self._clock.wall(), principal.actor
        told = {**data, **app_in(snapshot)}
        tx.events.append([Event(snapshot.team_id, kind, snapshot.id, now, told, actor)])
        tx.audit.append([AuditEntry(snapshot.team_id, actor, kind, snapshot.id, now, data)])


def _begun(sandbox: SandboxRecord, wish: Capture, now: float) -> SnapshotRecord:
    """What is written down before it is taken."""
    return SnapshotRecord(
        id=new_id(SNAPSHOT_PREFIX),
        team_id=sandbox.team_id,
        name=check_snapshot_name(wish.name) if wish.name else names.invent(),
        provider=sandbox.provider,
        created_at=now,
        sandbox_id=sandbox.id,
        template=sandbox.template,
        resources=sandbox.resources,
        labels=sandbox.labels,
        env=sandbox.env,
        ports=sandbox.ports,
        command_policy=sandbox.command_policy,
        egress=sandbox.egress,
        automatic=wish.automatic,
        expires_at=None if wish.keep_s is None else now + wish.keep_s,
        owner=sandbox.owner,
        app=sandbox.app,
        quarantine=sandbox.quarantine,
    )


def _placed(tx: Transaction, record: SnapshotRecord, wish: Capture) -> SnapshotRecord:
    """Under its name; or, until it is there, beside the one that has the name."""
    holder = tx.snapshots.get(record.team_id, record.name)
    if holder is None:
        return record
    if not wish.replace_any:
        _check_same_sandbox(tx, holder, record.sandbox_id)
    _check_gives_way(holder)
    if not wish.replace:
        raise Conflict(
            f"the name {holder.name} belongs to snapshot {holder.id} of the same sandbox",
            remediation="choose another name, or say that it shall be replaced",
        )
    any_of = wish.replace_any
    return replace(record, name=names.invent(), replacing=holder.name, replacing_any=any_of)


def _check_gives_way(holder: SnapshotRecord) -> None:
    if not holder.ref:
        raise being_taken(holder)
    if holder.quarantine is not None:
        raise Conflict(
            f"the name {holder.name} belongs to evidence, snapshot {holder.id}, which is not "
            "replaced",
            remediation="choose another name; an admin deletes evidence by its id",
        )


def _check_same_sandbox(tx: Transaction, holder: SnapshotRecord, sandbox_id: str) -> None:
    if holder.sandbox_id == sandbox_id:
        return
    other = tx.sandboxes.get(holder.team_id, holder.sandbox_id)
    if other is None or other.is_gone:
        whose = f"{other.name if other else holder.sandbox_id}, which has been removed since"
    else:
        whose = other.name
    raise Conflict(
        f"the name {holder.name} belongs to a snapshot of another sandbox, {whose}",
        remediation=f"choose another name, or `paddock snapshot rm {holder.name}` first",
    )
