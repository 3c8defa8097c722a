"""Warm pools: how many sandboxes of a template wait ready, changed while everything runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Forbidden, InvalidRequest, PaddockError, Unsupported
from paddock.domain.event import Event, EventKind
from paddock.domain.pressure import Band, kept_warm
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.provider_templates import Kept, Pool
from paddock.services.providers import Providers
from paddock.services.settings import Origin

_log = logging.getLogger(__name__)
LARGEST_POOL = 1000
_PREFIX = "pool."
_PATIENCE_S = 5.0
"""How long a change is waited for: a template that is not built yet takes minutes."""


@dataclass(frozen=True, slots=True)
class PoolState:
    """How a template's pool is."""

    provider: str
    template: str
    size: int
    """How many shall wait."""
    source: Origin
    kept: int
    """How many do while memory is as short as it is now."""
    ready: int


class Pools:
    """What is set is kept and outlives a restart. Under memory pressure pools are the first to
    give way, before anybody's sandbox."""

    def __init__(self, store: Store, clock: Clock, providers: Providers) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers
        self._set: dict[tuple[str, str], int] = {}
        self._band = Band.NORMAL
        self._tasks: set[asyncio.Task[None]] = set()

    async def get(self, principal: Principal, provider: str, template: str) -> PoolState:
        principal.require(Scope.TEMPLATES_READ)
        name, kept, pool = self._pool(provider)
        await asyncio.to_thread(kept.recipes.recipe, template)
        return self._state(name, pool, template)

    async def change(
        self, principal: Principal, provider: str, template: str, size: int | None
    ) -> PoolState:
        """At once: it grows or shrinks. None goes back to what the configuration says."""
        principal.require(Scope.TEMPLATES_WRITE)
        if not principal.operator:
            raise Forbidden(
                "what waits ready uses the installation's memory, so its operators decide on it",
                remediation="ask the team that runs it",
            )
        if size is not None and not 0 <= size <= LARGEST_POOL:
            raise InvalidRequest(
                f"a pool of {size} is asked for", remediation=f"ask for 0 to {LARGEST_POOL}"
            )
        name, kept, pool = self._pool(provider)
        await asyncio.to_thread(kept.recipes.recipe, template)
        await self._write(principal, (name, template), size)
        await self._apply(name, pool, template)
        return self._state(name, pool, template)

    def states(self) -> Iterator[PoolState]:
        """Of every pool that there is, for the metrics."""
        for name, pool in self._all():
            for template in sorted({*pool.configured, *(t for p, t in self._set if p == name)}):
                yield self._state(name, pool, template)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """What was set before this process started holds while this is open."""
        await self._load()
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _load(self) -> None:
        kept = await self._store.read(lambda tx: tx.values.all(_PREFIX))
        for key, size in kept.items():
            provider, _, template = key.removeprefix(_PREFIX).partition("/")
            self._set[provider, template] = int(str(size))
        for name, pool in self._all():
            for provider, template in tuple(self._set):
                if provider == name:
                    self._begin(self._keep(name, pool, template))

    async def under_pressure(self, band: Band) -> None:
        self._band = band
        for state in tuple(self.states()):
            _, _, pool = self._pool(state.provider)
            await self._apply(state.provider, pool, state.template)

    def _state(self, provider: str, pool: Pool, template: str) -> PoolState:
        size, source = self._size(provider, pool, template)
        kept, ready = kept_warm(size, self._band), pool.ready(template)
        return PoolState(provider, template, size, source, kept, ready)

    def _size(self, provider: str, pool: Pool, template: str) -> tuple[int, Origin]:
        if (chosen := self._set.get((provider, template))) is not None:
            return chosen, Origin.RUN_TIME
        if (configured := pool.configured.get(template)) is not None:
            return configured, Origin.CONFIGURATION
        return 0, Origin.DEFAULT

    async def _apply(self, provider: str, pool: Pool, template: str) -> None:
        """Waited for a little; a template that has to be built first goes on by itself."""
        task = self._begin(self._keep(provider, pool, template))
        await asyncio.wait({task}, timeout=_PATIENCE_S)

    async def _keep(self, provider: str, pool: Pool, template: str) -> None:
        size, _ = self._size(provider, pool, template)
        try:
            await pool.keep(template, kept_warm(size, self._band))
        except PaddockError as error:
            details = {"template": template, "error": error.message}
            _log.warning("pool not changed", extra=details)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _write(self, principal: Principal, key: tuple[str, str], size: int | None) -> None:
        now, value = self._clock.wall(), "/".join(key)

        def write(tx: Transaction) -> None:
            if size is None:
                tx.values.remove(_PREFIX + value)
            else:
                tx.values.put(_PREFIX + value, size)
            team, actor, kind = principal.team_id, principal.actor, EventKind.POOL_CHANGED
            data = {"provider": key[0], "size": size}
            tx.events.append([Event(team, kind, key[1], now, data, actor)])
            tx.audit.append([AuditEntry(team, actor, kind, key[1], now, data)])

        await self._store.write(write)
        if size is None:
            self._set.pop(key, None)
        else:
            self._set[key] = size

    def _all(self) -> Iterator[tuple[str, Pool]]:
        for name, kept in self._providers.templates.items():
            if isinstance(kept, Kept) and kept.pool is not None:
                yield name, kept.pool

    def _pool(self, provider: str) -> tuple[str, Kept, Pool]:
        name = provider or self._providers.default
        self._providers.get(name)
        kept = self._providers.templates.get(name)
        if not isinstance(kept, Kept) or kept.pool is None:
            raise Unsupported(
                f"provider {name} keeps no sandboxes ready",
                remediation="name the provider local, if it is in use",
            )
        return name, kept, kept.pool
