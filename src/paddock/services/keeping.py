"""Snapshots by themselves: of what idles and of what is about to go, and none for ever."""

import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial

from paddock.domain.errors import PaddockError
from paddock.domain.keeping import Pruning, is_due, outgrown
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Page, SandboxFilter, Store, Transaction
from paddock.services.activity import Activity
from paddock.services.changes import Changes
from paddock.services.providers import Providers
from paddock.services.snapshots import Snapshots
from paddock.services.system import system
from paddock.services.taking import Capture

_log = logging.getLogger(__name__)
_PAGE = 500
_WITH_A_DISK = frozenset({SandboxState.RUNNING, SandboxState.PAUSED, SandboxState.STOPPED})


class AutomaticSnapshots:
    """What Paddock keeps by itself, and what it lets go."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        providers: Providers,
        *,
        changes: Changes,
        snapshots: Snapshots,
        activity: Activity,
    ) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers
        self._changes = changes
        self._snapshots = snapshots
        self._activity = activity

    async def look(self) -> None:
        """Keep what idles, then let go of what is too old or too many."""
        async for sandbox in self._changes.each(SandboxFilter(states=_WITH_A_DISK)):
            try:
                await self._keep_idle(sandbox)
            except PaddockError as error:
                details = {"id": sandbox.id, "error": error.message}
                _log.warning("idle sandbox not kept", extra=details)
        while await self._snapshots.remove_expired():
            pass

    async def _keep_idle(self, sandbox: SandboxRecord) -> None:
        if not self._can(sandbox):
            return
        taken = [each for each in await self._of(sandbox.team_id, sandbox.id) if each.automatic]
        active_at = self._activity.known(sandbox.id, sandbox.clock.active_at)
        newest = max((each.created_at for each in taken), default=None)
        who = system(sandbox.team_id, "keeper")
        keeping, now = self._snapshots.keeping, self._clock.wall()
        if is_due(keeping, active_at, newest, now):
            wish = Capture(automatic=True, keep_s=keeping.kept_s)
            taken.insert(0, await self._snapshots.take(who, sandbox.id, wish))
        for each in outgrown(taken, Pruning(keep_last=keeping.most), now):
            await self._snapshots.delete(who, each.id)

    async def before_delete(self, sandbox: SandboxRecord) -> None:
        """Its disk is kept if that is wanted; where it cannot be, it is not deleted."""
        wanted = self._snapshots.keeping.before_delete
        if wanted and sandbox.state in _WITH_A_DISK and sandbox.ref and self._can(sandbox):
            await self._snapshots.keep(system(sandbox.team_id, "keeper"), sandbox)

    async def prune(
        self, principal: Principal, pruning: Pruning, sandbox_name: str = ""
    ) -> Sequence[SnapshotRecord]:
        """Let go of those of the team, or of one sandbox; automatic ones only unless said."""
        principal.require(Scope.SNAPSHOTS_WRITE)
        sandbox_id = ""
        if sandbox_name:
            sandbox_id = (await self._changes.find(principal.team_id, sandbox_name)).id
        found: dict[str, list[SnapshotRecord]] = {}
        for each in await self._of(principal.team_id, sandbox_id):
            found.setdefault(each.sandbox_id, []).append(each)
        now = self._clock.wall()
        gone = [each for some in found.values() for each in outgrown(some, pruning, now)]
        for each in gone:
            await self._snapshots.delete(principal, each.id)
        return gone

    def _can(self, sandbox: SandboxRecord) -> bool:
        try:
            return self._providers.get(sandbox.provider).capabilities.snapshot
        except PaddockError:
            return False  # its provider is absent

    async def _of(self, team_id: str, sandbox_id: str) -> list[SnapshotRecord]:
        """Newest first, without those that are still being taken and without evidence, which goes
        by its name or when its time is up."""
        found = self._each(team_id, sandbox_id)
        return [each async for each in found if each.ref and each.quarantine is None]

    async def _each(self, team_id: str, sandbox_id: str) -> AsyncIterator[SnapshotRecord]:
        after = ""
        while page := await self._store.read(
            partial(_page, team_id=team_id, sandbox_id=sandbox_id, after=after)
        ):
            for each in page:
                yield each
            after = page[-1].id


def _page(tx: Transaction, team_id: str, sandbox_id: str, after: str) -> Sequence[SnapshotRecord]:
    return tx.snapshots.list(team_id, sandbox_id, Page(_PAGE, after))
