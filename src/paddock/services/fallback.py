"""Sandboxes are made elsewhere while the provider in use is away, where the operator wants that."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from paddock.domain.errors import Conflict, PaddockError, Unavailable
from paddock.domain.event import Event, EventKind
from paddock.domain.outage import Outage, is_outage, lasting, retold
from paddock.domain.records import SandboxRecord, app_in
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.provider import Observation, SandboxSpec
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services.changes import Changes
from paddock.services.egress_changes import described
from paddock.services.providers import Providers
from paddock.services.system import operating_team

_log = logging.getLogger(__name__)
_ACTOR = "paddock/fallback"
_LONGEST_S = 10.0
"""A provider that is asked whether it is back has so long to say so."""
Made = tuple[SandboxRecord, SandboxSpec, Observation]
There = Callable[[SandboxRecord], Awaitable[Made]]
"""Makes a sandbox on the provider that its record names."""
Replan = Callable[[SandboxRecord], SandboxRecord]
"""What depends on the provider is decided for the one that the record names now."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a sandbox may be made."""

    replan: Replan
    bound: str = ""
    """Why on one provider only; then there is no other way."""
    away: Outage | None = None
    """What is known of the provider in use when the way is chosen."""


class Fallback:
    """What this process knows of the provider in use, and what it does when that is away."""

    def __init__(
        self, store: Store, clock: Clock, providers: Providers, *, changes: Changes
    ) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers
        self._changes = changes
        self.name = providers.fallback
        self.outage: Outage | None = None

    def check(self, provider: str, bound: str) -> None:
        """That there is such a provider. One that did not open when the server began is away."""
        try:
            self._providers.get(provider)
        except Unavailable as error:
            self._explain(error, provider, bound)
            if bound or not self.name:
                raise

    async def route(self, bound: str, replan: Replan) -> Route:
        """For a new sandbox. Whoever is first after a while asks whether the provider is back, and
        the others are not held up by that."""
        if bound or not self.name:
            return Route(replan, bound)
        return Route(replan, away=await self._away())

    def planned(self, record: SandboxRecord, route: Route) -> SandboxRecord:
        """As it is entered: where it will be, and why there."""
        if route.away is not None:
            return self._elsewhere(record, route, route.away)
        try:
            return route.replan(record)
        except PaddockError as error:
            self._explain(error, record.provider, route.bound)
            raise

    def note(
        self, tx: Transaction, record: SandboxRecord, away: Outage, principal: Principal
    ) -> None:
        """That a sandbox is made elsewhere than it would have been, and what it may reach there."""
        why = {"from": away.provider, "to": record.provider, "why": away.error.message}
        data = {"state": record.state, "name": record.name, **app_in(record), **why}
        kind, now = EventKind.SANDBOX_DIVERTED, self._clock.wall()
        tx.events.append([Event(record.team_id, kind, record.id, now, data, principal.actor)])
        detail = {**why, "egress": described(record.egress)}
        tx.audit.append([self._changes.entry(principal, record, "sandbox.divert", detail)])

    async def make(
        self, record: SandboxRecord, route: Route | None, there: There, principal: Principal
    ) -> Made:
        """Where it was planned, or else on the fallback; what cannot be made there either gets the
        error of the provider in use."""
        if route is None or not self.name:
            return await there(record)
        if record.provider == self.name and route.away is not None:
            return await self._instead(record, route.away, there)
        try:
            made = await there(record)
        except PaddockError as error:
            self._explain(error, record.provider, route.bound)
            if route.bound or record.provider == self.name or not is_outage(error):
                raise
            away = await self._judged(error)
            elsewhere = self._elsewhere(record, route, away)
            await self._store.write(lambda tx: self._divert(tx, elsewhere, away, principal))
            self._changes.forget(record.id)
            return await self._instead(elsewhere, away, there)
        await self._found(record.provider)
        return made

    async def _instead(self, record: SandboxRecord, away: Outage, there: There) -> Made:
        try:
            return await there(record)
        except PaddockError as error:
            raise self._of_no_help(away, error) from error

    def _elsewhere(self, record: SandboxRecord, route: Route, away: Outage) -> SandboxRecord:
        detail = f"made on {self.name}, since {away.provider} is away: {away.error.message}"
        try:
            return route.replan(replace(record, provider=self.name, detail=detail[:500]))
        except PaddockError as error:
            raise self._of_no_help(away, error) from error

    def _explain(self, error: PaddockError, provider: str, bound: str) -> None:
        """Where the fallback could have helped, the error says why it was not asked."""
        if self.name and bound and provider != self.name and is_outage(error):
            said = f"the fallback {self.name} is not used, because {bound}"
            raise retold(error, provider, said) from error

    def _of_no_help(self, away: Outage, error: PaddockError) -> PaddockError:
        said = f"the fallback {self.name} cannot make it either: {error.message}"
        return retold(away.error, away.provider, said)

    def _divert(
        self, tx: Transaction, elsewhere: SandboxRecord, away: Outage, principal: Principal
    ) -> None:
        """From here on it is the other provider's, also for a restart that goes on with it. What
        the first may still have made of it is a leftover: the reconciler removes it."""
        current = tx.sandboxes.get(ANY_TEAM, elsewhere.id)
        if current is None or current.state is not SandboxState.CREATING:
            raise Conflict(f"sandbox {elsewhere.name} is not wanted any more")
        to, egress = elsewhere.provider, elsewhere.egress
        tx.sandboxes.replace(replace(current, provider=to, egress=egress, detail=elsewhere.detail))
        self.note(tx, elsewhere, away, principal)

    async def _away(self) -> Outage | None:
        outage, default = self.outage, self._providers.default
        if default in self._providers.absent:
            return outage or await self._lost(self._absence())
        if outage is None or self._clock.wall() < outage.ask_at:
            return outage
        self._note(outage.error)
        return None if await self._answers() else self.outage

    def _absence(self) -> PaddockError:
        """Of one that could not be opened when the server began."""
        why = self._providers.absent[self._providers.default].partition("\n")[0]
        return Unavailable(f"it did not open when the server began: {why}")

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(_LONGEST_S):
                return (await self._providers.get(self._providers.default).check()).usable
        except (PaddockError, TimeoutError):
            return False

    def _note(self, error: PaddockError) -> Outage:
        now, lasts_s = self._clock.wall(), self._providers.outage_s
        default = self._providers.default
        self.outage = lasting(self.outage, default, error, now=now, lasts_s=lasts_s)
        return self.outage

    async def _judged(self, error: PaddockError) -> Outage:
        """One that answers otherwise could not make this one: that is gone around once. The others
        are its own to make."""
        if not await self._answers():
            return await self._lost(error)
        now = self._clock.wall()
        return Outage(self._providers.default, now, now, error)

    async def _lost(self, error: PaddockError) -> Outage:
        is_new = self.outage is None
        away = self._note(error)
        if is_new:
            _log.warning("provider away", extra={"provider": away.provider, "error": error.message})
            data = {"why": error.message, "fallback": self.name}
            await self._tell(EventKind.PROVIDER_LOST, away.provider, data)
        return away

    async def _found(self, provider: str) -> None:
        if self.outage is None or self.outage.provider != provider:
            return
        data, self.outage = {"since": self.outage.since}, None
        await self._tell(EventKind.PROVIDER_FOUND, provider, data)

    async def _tell(self, kind: EventKind, provider: str, data: Mapping[str, object]) -> None:
        now = self._clock.wall()

        def tell(tx: Transaction) -> None:
            if team := operating_team(tx):
                tx.events.append([Event(team.id, kind, provider, now, data, _ACTOR)])

        await self._store.write(tell)
