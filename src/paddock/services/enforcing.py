"""What sandboxes may reach, put in force: by what is wanted when it is, not when somebody began."""

import logging
from collections.abc import Callable

from paddock.domain.egress import EgressPolicy
from paddock.domain.errors import NotFound, PaddockError
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Ref
from paddock.ports.store import ANY_TEAM, SandboxFilter, Store
from paddock.services.changes import Changes
from paddock.services.providers import Providers

_log = logging.getLogger(__name__)
_NOTHING_TO_FENCE = frozenset({SandboxState.CREATING, SandboxState.FAILED})
"""One that is being made is looked at when it has been."""
_WITH_MACHINE = frozenset({SandboxState.RUNNING, SandboxState.PAUSED})
"""Those that sleep are looked at when they are woken."""


class Enforcing:
    """Has providers enforce policies."""

    def __init__(
        self,
        store: Store,
        changes: Changes,
        providers: Providers,
        *,
        policy: Callable[[SandboxRecord], EgressPolicy],
    ) -> None:
        self._store = store
        self._changes = changes
        self._providers = providers
        self._policy = policy
        self._late: set[str] = set()
        """Sandboxes whose providers could not, when they were asked."""
        self._unfinished: Callable[[SandboxRecord], bool] | None = None
        """Not all have been asked that the last round was for."""

    async def one(self, sandbox: SandboxRecord) -> None:
        """What its provider cannot do now is tried again later, whoever is told of it."""
        try:
            await self._enforce(sandbox)
        except NotFound:
            raise
        except PaddockError:
            self._late.add(sandbox.id)
            raise

    async def _enforce(self, sandbox: SandboxRecord) -> None:
        """Until what is in force is what should be: others may change that at the same time, here
        or in another process, and who is the last to ask its provider may know the least."""
        asked: EgressPolicy | None = None
        while _is_fenced(sandbox) and (wanted := self._policy(sandbox)) != asked:
            provider = self._providers.get(sandbox.provider)
            await provider.set_egress(Ref(sandbox.provider, sandbox.ref), wanted)
            asked = wanted
            sandbox = await self._now(sandbox.id) or sandbox

    async def all(self, concerned: Callable[[SandboxRecord], bool]) -> None:
        """Every one that could reach anything now. One that cannot is tried again later, and so are
        all where this is broken off."""
        self._unfinished = concerned
        async for sandbox in self._changes.each(SandboxFilter(states=_WITH_MACHINE)):
            if sandbox.ref and concerned(sandbox):
                await self._try(sandbox)
        self._unfinished = None

    async def again(self) -> None:
        if self._unfinished is not None:
            await self.all(self._unfinished)
        for sandbox_id in tuple(self._late):
            found = await self._now(sandbox_id)
            self._late.discard(sandbox_id)
            if found is not None:
                await self._try(found)

    async def _try(self, sandbox: SandboxRecord) -> None:
        try:
            await self.one(sandbox)
        except NotFound:
            pass  # it went meanwhile, or its provider has lost it, which others will tell
        except PaddockError as error:
            told = {"id": sandbox.id, "error": error.message}
            _log.warning("egress policy not applied", extra=told)

    async def _now(self, sandbox_id: str) -> SandboxRecord | None:
        return await self._store.read(lambda tx: tx.sandboxes.get(ANY_TEAM, sandbox_id))


def _is_fenced(sandbox: SandboxRecord) -> bool:
    return bool(sandbox.ref) and not sandbox.is_gone and sandbox.state not in _NOTHING_TO_FENCE
