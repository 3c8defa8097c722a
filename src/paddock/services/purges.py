"""Forgetting an owner: sandboxes, snapshots, and what the logs say of them, at any pace."""

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Conflict, InvalidRequest, NotFound, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_id
from paddock.domain.purge import PURGE_PREFIX, Purge, PurgeState, digest_of
from paddock.domain.records import SandboxRecord, SnapshotRecord, check_owner
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Page, SandboxFilter, Store, Transaction
from paddock.services.recall import Recall
from paddock.services.sandboxes import Sandboxes
from paddock.services.snapshots import Snapshots
from paddock.services.system import system

_log = logging.getLogger(__name__)
_PAGE = 500
_PAUSE_S = 5.0
_EVERY = frozenset(SandboxState)
_KEY = "purge-key"
_ALWAYS_KEPT = (
    "audit entries: who did what and when, by ids; details are taken out and the chain still holds"
)


class Purges:
    """Every step can be done again, so that a purge goes on wherever it was interrupted."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        sandboxes: Sandboxes,
        snapshots: Snapshots,
        recall: Recall,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._recall = recall
        self._underway: dict[str, asyncio.Task[None]] = {}

    async def plan(self, principal: Principal, owner: str) -> Purge:
        """What would go, and what stands against it. Nothing is changed."""
        principal.require(Scope.OWNERS_PURGE)
        boxes, copies = await self._belongings(principal.team_id, _named(owner))
        purge = await self._new(principal, owner, force=False)
        return replace(
            purge,
            id="",
            state=PurgeState.PLANNED,
            removed={"sandboxes": len(boxes), "snapshots": len(copies)},
            kept=(*await self._held(boxes), _ALWAYS_KEPT),
        )

    async def begin(self, principal: Principal, owner: str, *, force: bool) -> Purge:
        """Goes on by itself, also after a crash. Conflict, and nothing is removed, while work that
        is nowhere else would be lost."""
        principal.require(Scope.OWNERS_PURGE)
        boxes, _ = await self._belongings(principal.team_id, _named(owner))
        if not force and (held := await self._held(boxes)):
            raise Conflict(
                f"{len(held)} of {len(boxes)} sandboxes hold work that is nowhere else: "
                + "; ".join(held[:5]),
                remediation="extract it first, or purge with force to lose it",
            )
        purge = await self._new(principal, owner, force=force)

        def write(tx: Transaction) -> None:
            _put(tx, purge)
            detail = {"digest": purge.digest, "forced": force}
            tx.audit.append([_entry(purge, "owner.purge", self._clock.wall(), detail)])

        await self._store.write(write)
        self._follow(purge)
        return purge

    async def get(self, principal: Principal, purge_id: str) -> Purge:
        principal.require(Scope.OWNERS_PURGE)
        found = await self._store.read(lambda tx: tx.values.get(_name(principal, purge_id)))
        if found is None:
            raise NotFound(
                f"there is no purge {purge_id[:80]}", remediation="`GET /v1/purges` lists them"
            )
        return msgspec.convert(found, Purge)

    async def list(self, principal: Principal) -> Sequence[Purge]:
        """Newest first."""
        principal.require(Scope.OWNERS_PURGE)
        found = await self._store.read(lambda tx: tx.values.all(_name(principal, "")))
        return [msgspec.convert(found[name], Purge) for name in sorted(found, reverse=True)]

    async def settle(self) -> None:
        """After a start: go on with what the last process did not finish."""
        if self._store.is_shared:
            return  # another process may be at it; who asks again begins a new one
        for value in (await self._store.read(lambda tx: tx.values.all("purge."))).values():
            purge = msgspec.convert(value, Purge)
            if purge.state is PurgeState.RUNNING:
                self._follow(purge)

    async def aclose(self) -> None:
        """Leave what is not done to the next start."""
        tasks = list(self._underway.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _follow(self, purge: Purge) -> None:
        task = asyncio.create_task(self._carry_out(purge), name=f"purge {purge.id}")
        self._underway[purge.id] = task
        task.add_done_callback(lambda _: self._underway.pop(purge.id, None))

    async def _carry_out(self, purge: Purge) -> None:
        while True:
            try:
                purge, waits = await self._pass(purge)
            except PaddockError as error:
                _log.warning("purge interrupted", extra={"id": purge.id, "error": error.message})
                waits = True
            if purge.state is not PurgeState.RUNNING:
                return
            if waits:
                await self._clock.sleep(_PAUSE_S)

    async def _pass(self, purge: Purge) -> tuple[Purge, bool]:
        """Remove all that there is now; whether something has to be waited for."""
        boxes, copies = await self._belongings(purge.team_id, purge.owner)
        found = (*(box.id for box in boxes), *(copy.id for copy in copies))
        known = dict.fromkeys((*purge.subjects, *found))
        purge = await self._put(replace(purge, subjects=tuple(known)))
        purge, waits = await self._remove(purge, boxes, copies)
        if waits:
            return purge, True
        cleared = [await self._clear(subject) for subject in purge.subjects]
        return await self._finish(purge, boxes, sum(cleared)), False

    async def _remove(
        self, purge: Purge, boxes: Sequence[SandboxRecord], copies: Sequence[SnapshotRecord]
    ) -> tuple[Purge, bool]:
        who, kept, waits = system(purge.team_id, "purge"), [], False
        count = {"sandboxes": 0, "snapshots": 0}
        for copy in copies:
            try:
                await self._snapshots.delete(who, copy.id)
            except NotFound:
                continue  # an earlier pass, or its retention
            count["snapshots"] += 1
        for box in boxes:
            if box.state is SandboxState.DELETED:
                continue
            try:
                left = await self._sandboxes.delete(who, box.id, force=purge.force)
            except Conflict as error:
                kept.append(f"sandbox {box.id}: {error.message}")
                continue
            count["sandboxes"] += 1
            waits = waits or left.state is not SandboxState.DELETED
        purge = replace(purge, removed=_sum(purge.removed, count))
        if kept:
            blocked = replace(purge, state=PurgeState.BLOCKED, kept=tuple(kept))
            return await self._put(replace(blocked, ended_at=self._clock.wall())), False
        return await self._put(purge), waits

    async def _clear(self, subject: str) -> int:
        """Take what is personal out of its events, a little at a time."""
        after, count = 0, 0
        while last := await self._store.write(
            lambda tx, after=after: tx.events.forget(subject, after, _PAGE)  # type: ignore[misc]
        ):
            after, count = last, count + 1
        return count

    async def _finish(self, purge: Purge, boxes: Sequence[SandboxRecord], events: int) -> Purge:
        """The records last, all at once: as long as they are there, the rest is found by them."""
        if purge.state is not PurgeState.RUNNING:
            return purge
        now = self._clock.wall()

        def write(tx: Transaction) -> Purge:
            redacted, fixed = tx.audit.redact(purge.team_id, purge.subjects)
            for box in boxes:
                tx.sandboxes.forget(box.id)
            for subject in purge.subjects:
                tx.keys.release(purge.team_id, subject)
            if _left(tx, purge):
                return replace(purge, removed=_sum(purge.removed, {"audit details": redacted}))
            old = (f"audit entries: {fixed} are from before details could be taken out",)
            done = replace(
                purge,
                owner="",
                subjects=(),
                state=PurgeState.DONE,
                removed=_sum(purge.removed, {"audit details": redacted}),
                kept=(_ALWAYS_KEPT, *(old if fixed else ())),
                ended_at=now,
            )
            _put(tx, done)
            kind, data = EventKind.OWNER_FORGOTTEN, dict(done.removed)
            tx.events.append([Event(purge.team_id, kind, purge.id, now, data, purge.actor)])
            tx.audit.append([_entry(done, kind, now, {"digest": done.digest, **data})])
            return done

        done = await self._store.write(write)
        for box in boxes:
            self._recall.forget(box.id)
        return done

    async def _belongings(
        self, team_id: str, owner: str
    ) -> tuple[Sequence[SandboxRecord], Sequence[SnapshotRecord]]:
        def look(tx: Transaction) -> tuple[Sequence[SandboxRecord], Sequence[SnapshotRecord]]:
            wanted = SandboxFilter(states=_EVERY, owner=owner)
            page = Page(_PAGE)
            return tx.sandboxes.list(team_id, wanted, page), tx.snapshots.owned(
                team_id, owner, page
            )

        return await self._store.read(look)

    async def _held(self, boxes: Sequence[SandboxRecord]) -> Sequence[str]:
        losses = [(box, await self._sandboxes.losses(box)) for box in boxes if not box.is_gone]
        return [f"sandbox {box.name}: {loss}" for box, loss in losses if loss]

    async def _new(self, principal: Principal, owner: str, *, force: bool) -> Purge:
        key = await self._store.write(lambda tx: tx.values.add(_KEY, secrets.token_hex(32)))
        return Purge(
            id=new_id(PURGE_PREFIX),
            team_id=principal.team_id,
            actor=principal.actor,
            digest=digest_of(str(key), principal.team_id, owner),
            created_at=self._clock.wall(),
            owner=owner,
            force=force,
        )

    async def _put(self, purge: Purge) -> Purge:
        await self._store.write(lambda tx: _put(tx, purge))
        return purge


def _named(owner: str) -> str:
    if not owner:
        raise InvalidRequest("a purge needs an owner", remediation="say whom to forget")
    return check_owner(owner)


def _left(tx: Transaction, purge: Purge) -> bool:
    """More than a page, or something that was made meanwhile."""
    wanted = SandboxFilter(states=_EVERY, owner=purge.owner)
    boxes = tx.sandboxes.list(purge.team_id, wanted, Page(1))
    return bool(boxes or tx.snapshots.owned(purge.team_id, purge.owner, Page(1)))


def _name(principal: Principal, purge_id: str) -> str:
    return f"purge.{principal.team_id}.{purge_id}"


def _put(tx: Transaction, purge: Purge) -> None:
    tx.values.put(f"purge.{purge.team_id}.{purge.id}", msgspec.to_builtins(purge))


def _entry(purge: Purge, action: str, now: float, detail: Mapping[str, object]) -> AuditEntry:
    return AuditEntry(purge.team_id, purge.actor, action, purge.id, now, detail)


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
