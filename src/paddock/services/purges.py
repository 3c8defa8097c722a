"""Forgetting an owner or an app: what is theirs and what the logs say of them, at any pace."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import msgspec

from paddock.domain.audit import TAKEN_OUT, AuditEntry
from paddock.domain.errors import Conflict, NotFound, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_id
from paddock.domain.purge import PURGE_PREFIX, Purge, PurgeState, Whose, digest_of
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.secret import Secret
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services import quarantine_cases
from paddock.services.alongside import alongside, every
from paddock.services.belongings import Belongings, belongings
from paddock.services.bindings import forget_app
from paddock.services.forgetting import clear, clear_app
from paddock.services.leases import Leases
from paddock.services.once import Repeatable
from paddock.services.purge_tasks import OwnTask, PurgeTasks
from paddock.services.recall import Recall
from paddock.services.sandboxes import Sandboxes
from paddock.services.secrets import Secrets
from paddock.services.snapshots import Snapshots
from paddock.services.system import system

_log = logging.getLogger(__name__)
_PAGE = 500
_PAUSE_S = 5.0
_LOOK_EVERY_S = 5.0
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
        secrets: Secrets,
        tasks: PurgeTasks,
        recall: Recall,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._secrets = secrets
        self._tasks = tasks
        self._recall = recall
        self._leases = Leases(store, clock)
        self._underway: dict[str, asyncio.Task[None]] = {}

    async def plan(self, principal: Principal, whose: Whose) -> Purge:
        """What would go, and what stands against it. Nothing is changed."""
        principal.require(Scope.OWNERS_PURGE)
        found = await self._find(principal.team_id, whose)
        purge = await self._new(principal, whose, force=False)
        return replace(
            purge,
            id="",
            state=PurgeState.PLANNED,
            removed=_counts(whose, found, await self._tasks.find(purge, found)),
            kept=(*await self._held(found.boxes), _ALWAYS_KEPT),
        )

    async def begin(
        self, principal: Principal, whose: Whose, *, force: bool, key: str = ""
    ) -> Purge:
        """Goes on by itself, also after a crash; the same key gives the same one, however far it
        has come. Conflict, and nothing is removed, while work that is nowhere else would be lost.
        """
        principal.require(Scope.OWNERS_PURGE)
        purge = await self._new(principal, whose, force=force)
        request = Repeatable(principal, key, "purge", (purge.digest, force))
        if earlier := await self._store.read(lambda tx: _earlier(tx, request)):
            return earlier
        await self._check_nothing_is_lost(principal, whose, force=force)
        begun = await self._store.write(lambda tx: self._begun(tx, purge, request))
        if begun.id == purge.id:
            self._follow(purge)
        return begun

    async def _check_nothing_is_lost(
        self, principal: Principal, whose: Whose, *, force: bool
    ) -> None:
        boxes = (await self._find(principal.team_id, whose)).boxes
        if not force and (held := await self._held(boxes)):
            raise Conflict(
                f"{len(held)} of {len(boxes)} sandboxes hold work that is nowhere else: "
                + "; ".join(held[:5]),
                remediation="extract it first, or lose it with --force (`force` in the API)",
            )

    def _begun(self, tx: Transaction, purge: Purge, request: Repeatable) -> Purge:
        if earlier := _earlier(tx, request):
            return earlier
        now = self._clock.wall()
        if request.key:
            tx.keys.claim(
                purge.team_id,
                request.key,
                fingerprint=request.fingerprint,
                object_id=purge.id,
                now=now,
            )
        _put(tx, purge)
        self._leases.take(tx, purge.id)
        action = "app.purge" if purge.app else "owner.purge"
        detail = {"digest": purge.digest, "forced": purge.force}
        tx.audit.append([_entry(purge, action, now, detail)])
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
        await self._take_over(anyway=not self._store.is_shared or self._store.was_unused)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While this is open, what another process dies at is gone on with here."""
        if not self._store.is_shared:
            yield
            return
        looking = every(
            _LOOK_EVERY_S, self._take_over, clock=self._clock, failed="purges could not be read"
        )
        async with alongside(looking, "purges of other processes"):
            yield

    async def _take_over(self, *, anyway: bool = False) -> None:
        for value in (await self._store.read(lambda tx: tx.values.all("purge."))).values():
            purge = msgspec.convert(value, Purge)
            if purge.state is not PurgeState.RUNNING or purge.id in self._underway:
                continue
            take = partial(self._leases.take, name=purge.id, anyway=anyway)
            if await self._store.write(take):
                _log.info("purge taken over", extra={"id": purge.id})
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
        async with self._leases.kept(purge.id):
            await self._pursue(purge)

    async def _pursue(self, purge: Purge) -> None:
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
        found = await self._find(purge.team_id, purge.whose, most=_PAGE)
        tasks = await self._tasks.find(purge, found)
        known = dict.fromkeys((*purge.subjects, *found.ids, *(task.id for task in tasks)))
        purge = await self._put(replace(purge, subjects=tuple(known)))
        if await self._tasks.end(purge, found, tasks):
            return purge, True
        purge, kept = await self._remove(purge, found)
        stays = kept | {task.id for task in tasks if not task.is_over or task.sandbox_id in kept}
        if stays and purge.state is PurgeState.RUNNING:
            return purge, True
        for subject in purge.subjects:
            if subject not in stays:
                await clear(self._store, subject)
        return await self._finish(purge, found.boxes), False

    async def _remove(self, purge: Purge, found: Belongings) -> tuple[Purge, frozenset[str]]:
        """The sandboxes that are still there: kept, or on their way."""
        who = system(purge.team_id, "purge")
        count = {"snapshots": await self._remove_snapshots(who, found.copies)}
        kept, leaving, count["sandboxes"] = await self._remove_sandboxes(who, found.boxes, purge)
        if purge.app and not kept:
            # What stays still needs its configuration.
            count["secrets"] = await self._remove_secrets(who, found.secrets, purge.app)
        purge = replace(purge, removed=_sum(purge.removed, count))
        if kept:
            why = tuple(f"sandbox {box}: {message}" for box, message in kept.items())
            purge = replace(purge, state=PurgeState.BLOCKED, kept=why, ended_at=self._clock.wall())
        return await self._put(purge), frozenset((*kept, *leaving))

    async def _remove_snapshots(self, who: Principal, copies: Sequence[SnapshotRecord]) -> int:
        count = 0
        for copy in copies:
            with suppress(NotFound):  # an earlier pass, or its retention
                await self._snapshots.delete(who, copy.id)
                count += 1
        return count

    async def _remove_sandboxes(
        self, who: Principal, boxes: Sequence[SandboxRecord], purge: Purge
    ) -> tuple[Mapping[str, str], Sequence[str], int]:
        """Which could not be and why, which are still on their way, and how many were."""
        kept: dict[str, str] = {}
        leaving, count = [], 0
        for box in boxes:
            if box.state is SandboxState.DELETED:
                continue
            try:
                left = await self._sandboxes.delete(who, box.id, force=purge.force)
            except Conflict as error:
                kept[box.id] = error.message
                continue
            count += 1
            if left.state is not SandboxState.DELETED:
                leaving.append(box.id)
        return kept, leaving, count

    async def _remove_secrets(self, who: Principal, found: Sequence[Secret], app: str) -> int:
        count = 0
        for secret in found:
            with suppress(NotFound):
                await self._secrets.delete(who, secret.name, app)
                count += 1
        return count

    async def _finish(self, purge: Purge, boxes: Sequence[SandboxRecord]) -> Purge:
        """The records last, all at once: as long as they are there, the rest is found by them."""
        if purge.state is not PurgeState.RUNNING:
            return purge
        now = self._clock.wall()
        purge = replace(purge, removed=_sum(purge.removed, await self._tasks.forget(purge)))
        numbers = await clear_app(self._store, purge.team_id, purge.app) if purge.app else ()

        def write(tx: Transaction) -> Purge:
            redacted, fixed = tx.audit.redact(purge.team_id, purge.subjects, numbers)
            _forget_records(tx, purge, boxes)
            so_far = replace(purge, removed=_sum(purge.removed, {TAKEN_OUT: redacted}))
            # More than a page, or something that was made meanwhile.
            if belongings(tx, purge.team_id, purge.whose, most=1):
                return _put(tx, so_far)  # who checks the log compares what was taken out
            old = (f"audit entries: {fixed} are from before details could be taken out",)
            done = replace(
                so_far,
                owner="",
                app="",
                subjects=(),
                state=PurgeState.DONE,
                kept=(_ALWAYS_KEPT, *(old if fixed else ())),
                ended_at=now,
            )
            _put(tx, done)
            kind = EventKind.APP_FORGOTTEN if purge.app else EventKind.OWNER_FORGOTTEN
            data = dict(done.removed)
            tx.events.append([Event(purge.team_id, kind, purge.id, now, data, purge.actor)])
            tx.audit.append([_entry(done, kind, now, {"digest": done.digest, **data})])
            return done

        done = await self._store.write(write)
        for box in boxes:
            self._recall.forget(box.id)
        return done

    async def _find(self, team_id: str, whose: Whose, *, most: int | None = None) -> Belongings:
        return await self._store.read(lambda tx: belongings(tx, team_id, whose, most=most))

    async def _held(self, boxes: Sequence[SandboxRecord]) -> Sequence[str]:
        losses = [(box, await self._sandboxes.losses(box)) for box in boxes if not box.is_gone]
        return [f"sandbox {box.name}: {loss}" for box, loss in losses if loss]

    async def _new(self, principal: Principal, whose: Whose, *, force: bool) -> Purge:
        key = await self._store.write(lambda tx: tx.values.add(_KEY, secrets.token_hex(32)))
        return Purge(
            id=new_id(PURGE_PREFIX),
            team_id=principal.team_id,
            actor=principal.actor,
            digest=digest_of(str(key), principal.team_id, whose),
            created_at=self._clock.wall(),
            owner=whose.owner,
            app=whose.app,
            force=force,
        )

    async def _put(self, purge: Purge) -> Purge:
        return await self._store.write(lambda tx: _put(tx, purge))


def _counts(whose: Whose, found: Belongings, tasks: Sequence[OwnTask]) -> dict[str, int]:
    count = {"sandboxes": len(found.boxes), "snapshots": len(found.copies), "tasks": len(tasks)}
    return count | ({"secrets": len(found.secrets)} if whose.app else {})


def _name(principal: Principal, purge_id: str) -> str:
    return f"purge.{principal.team_id}.{purge_id}"


def _earlier(tx: Transaction, request: Repeatable) -> Purge | None:
    """The one that the same request has begun before."""
    if not request.key:
        return None
    who = request.principal
    found = tx.keys.find(who.team_id, request.key, fingerprint=request.fingerprint)
    value = tx.values.get(_name(who, found)) if found else None
    return None if value is None else msgspec.convert(value, Purge)


def _forget_records(tx: Transaction, purge: Purge, boxes: Sequence[SandboxRecord]) -> None:
    if purge.app:
        forget_app(tx, purge.team_id, purge.app)
    for box in boxes:
        tx.approvals.forget(box.id)
        quarantine_cases.forget(tx, box)
        tx.sandboxes.forget(box.id)
    for subject in purge.subjects:
        tx.keys.release(purge.team_id, subject)


def _put(tx: Transaction, purge: Purge) -> Purge:
    tx.values.put(f"purge.{purge.team_id}.{purge.id}", msgspec.to_builtins(purge))
    return purge


def _entry(purge: Purge, action: str, now: float, detail: Mapping[str, object]) -> AuditEntry:
    return AuditEntry(purge.team_id, purge.actor, action, purge.id, now, detail)


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
