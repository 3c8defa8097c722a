"""What can be done with a sandbox as a whole."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from paddock.domain.errors import Conflict, NotFound, PaddockError, ProviderError
from paddock.domain.quarantine import check_open
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord, alive, moved
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.provider import Observation, Provider, Ref, Usage
from paddock.ports.store import Page, SandboxFilter, Store
from paddock.services.activity import Activity
from paddock.services.amendments import Amendment, amended
from paddock.services.begun import PATIENT, Patience
from paddock.services.changes import Changes
from paddock.services.guests import Guests
from paddock.services.making import Making
from paddock.services.networks import fit
from paddock.services.providers import Providers
from paddock.services.verbs import SETTLED, check_verb, is_lost, ref_of
from paddock.services.wishes import Wish

_log = logging.getLogger(__name__)
_ASLEEP = frozenset({SandboxState.STOPPED, SandboxState.ARCHIVED})
Hold = Callable[[SandboxRecord], Awaitable[str]]
"""What would be lost if the sandbox went now, in words; empty when nothing would be (L6)."""
Farewell = Callable[[SandboxRecord], Awaitable[None]]
"""What is done before a sandbox goes; where it fails, only force lets it go."""
Verb = Callable[[Provider, Ref], Awaitable[Observation]]


class Questions:
    """What can be asked about sandboxes. Nothing is changed by it."""

    def __init__(self, store: Store, changes: Changes, providers: Providers) -> None:
        self._store = store
        self._changes = changes
        self._providers = providers

    async def get(self, principal: Principal, name: str) -> SandboxRecord:
        principal.require(Scope.SANDBOXES_READ)
        return await self._changes.find(principal.team_id, name)

    async def list(
        self, principal: Principal, wanted: SandboxFilter, page: Page
    ) -> Sequence[SandboxRecord]:
        principal.require(Scope.SANDBOXES_READ)
        return await self._store.read(lambda tx: tx.sandboxes.list(principal.team_id, wanted, page))

    async def usage(self, principal: Principal, name: str) -> Usage:
        sandbox = alive(await self.get(principal, name))
        return await self._providers.get(sandbox.provider).usage(ref_of(sandbox))


class Sandboxes(Questions):
    """The verbs of one noun. Every one is safe to repeat."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        providers: Providers,
        *,
        changes: Changes,
        making: Making,
        guests: Guests,
        activity: Activity,
    ) -> None:
        super().__init__(store, changes, providers)
        self._clock, self._making = clock, making
        self._guests = guests
        self._activity = activity
        self.holds: list[Hold] = []
        self.stop_guards: list[Hold] = []
        """Each returns the work that a user's stop would interrupt; empty if none."""
        self.farewells: list[Farewell] = []

    async def create(
        self, principal: Principal, wish: Wish, key: str = "", *, patience: Patience = PATIENT
    ) -> SandboxRecord:
        return await self._making.create(principal, wish, key, patience=patience)

    async def fork(
        self, principal: Principal, name: str, wish: Wish, key: str = ""
    ) -> SandboxRecord:
        source = await self.get(principal, name)
        check_open(source.quarantine, source.name, principal)
        return await self._making.fork(principal, source, wish, key)

    async def amend(self, principal: Principal, name: str, wanted: Amendment) -> SandboxRecord:
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.living(principal.team_id, name)
        if wanted.public_ports is not None:
            check_open(sandbox.quarantine, sandbox.name, principal)
        now = self._clock.wall()
        return await self._changes.apply(
            sandbox.id,
            lambda current: amended(alive(current), wanted, now),
            principal,
            action="sandbox.change",
        )

    async def prolong(self, principal: Principal, name: str, seconds: float) -> SandboxRecord:
        """If it runs, it does for at least so long; looked at once nobody else is at it."""
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.find(principal.team_id, name)
        async with self._changes.alone(sandbox.id):
            sandbox = await self._changes.find(principal.team_id, sandbox.id)
            ends = sandbox.clock.expires_at
            is_short = ends is not None and ends < self._clock.wall() + seconds
            if sandbox.state is not SandboxState.RUNNING or not is_short:
                return sandbox
            return await self.amend(principal, sandbox.id, Amendment(timeout_s=seconds))

    async def start(self, principal: Principal, name: str) -> SandboxRecord:
        """A stopped or archived sandbox runs again, with the environment that was set since."""
        return await self._move(
            principal, name, SandboxState.RUNNING, lambda p, r: p.start(r), action="start"
        )

    async def resume(self, principal: Principal, name: str) -> SandboxRecord:
        return await self._move(
            principal, name, SandboxState.RUNNING, lambda p, r: p.resume(r), action="resume"
        )

    async def stop(
        self,
        principal: Principal,
        name: str,
        reason: Reason = Reason.USER,
        detail: str = "",
        *,
        only_if: Callable[[SandboxRecord], bool] | None = None,
    ) -> SandboxRecord:
        """`only_if` is checked under the sandbox's lock. Conflict if a user would interrupt a
        task."""
        if reason is Reason.USER:
            await self._check_breaks_off(principal, name)
        return await self._move(
            principal,
            name,
            SandboxState.STOPPED,
            lambda p, r: p.stop(r, reason),
            action="stop",
            why=(reason, detail),
            only_if=only_if,
        )

    async def archive(
        self, principal: Principal, name: str, reason: Reason = Reason.USER, detail: str = ""
    ) -> SandboxRecord:
        """A stopped sandbox keeps a compressed copy of its disk until it is started."""
        return await self._move(
            principal,
            name,
            SandboxState.ARCHIVED,
            lambda p, r: p.archive(r),
            action="archive",
            why=(reason, detail),
        )

    async def pause(
        self, principal: Principal, name: str, reason: Reason = Reason.USER, detail: str = ""
    ) -> SandboxRecord:
        return await self._move(
            principal,
            name,
            SandboxState.PAUSED,
            lambda p, r: p.pause(r),
            action="pause",
            why=(reason, detail),
        )

    async def delete(
        self,
        principal: Principal,
        name: str,
        *,
        force: bool = False,
        reason: Reason = Reason.USER,
        why: str = "it was removed",
    ) -> SandboxRecord:
        """Nothing of it remains but its name in the log. Refused while work would be lost. A
        creation is cancelled; its events say `why`."""
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.find(principal.team_id, name)
        if sandbox.state is SandboxState.CREATING:
            await self._making.cancel(sandbox, principal, why)
        async with self._changes.alone(sandbox.id):
            sandbox = await self._changes.find(principal.team_id, sandbox.id)
            if sandbox.state is SandboxState.DELETED:
                return sandbox
            if sandbox.state is not SandboxState.DELETING:
                if not force:
                    await self._check_holds(sandbox)
                await self._say_farewell(sandbox, force=force)
                sandbox = await self._changes.apply(
                    sandbox.id,
                    lambda current: moved(
                        current, SandboxState.DELETING, self._clock.wall(), reason=reason
                    ),
                    principal,
                    action="sandbox.delete",
                    detail={"forced": force},
                )
            return await self._finish_deleting(principal, sandbox)

    async def refresh(self, principal: Principal, sandbox: SandboxRecord) -> SandboxRecord:
        """Look at what the provider sees, and write down what has become of the sandbox."""
        async with self._changes.alone(sandbox.id):
            sandbox = await self._changes.find(principal.team_id, sandbox.id)
            if sandbox.is_gone or sandbox.state in SETTLED:
                return sandbox
            provider = self._providers.get(sandbox.provider)
            try:
                seen = await provider.observe(ref_of(sandbox))
            except NotFound:
                return await self._lost(principal, sandbox)
            return await self._note(principal, sandbox, seen)

    async def _move(
        self,
        principal: Principal,
        name: str,
        target: SandboxState,
        verb: Verb,
        *,
        action: str,
        why: tuple[Reason | None, str] = (None, ""),
        only_if: Callable[[SandboxRecord], bool] | None = None,
    ) -> SandboxRecord:
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.find(principal.team_id, name)
        async with self._changes.alone(sandbox.id):
            sandbox = await self._changes.find(principal.team_id, sandbox.id)
            if sandbox.state is target or (only_if is not None and not only_if(sandbox)):
                return sandbox
            if target is SandboxState.RUNNING:
                check_open(sandbox.quarantine, sandbox.name, principal)
            check_verb(sandbox, target, action)
            provider = self._providers.get(sandbox.provider)
            if target is not SandboxState.RUNNING:
                await self._guests.forget(sandbox.id)
            fence, is_boot = self._making.networks.policy(sandbox), sandbox.state in _ASLEEP
            await self._ask(principal, provider, sandbox, verb)
            reason, detail = why
            sandbox = await self._changes.apply(
                sandbox.id,
                lambda current: moved(
                    current, target, self._clock.wall(), reason=reason, detail=detail
                ),
                principal,
                action=f"sandbox.{action}",
            )
            if target is SandboxState.RUNNING:  # what was set while it slept
                await fit(self._making.networks, sandbox, fence)
                await self._making.wake(sandbox, is_boot=is_boot)
            return sandbox

    async def _ask(
        self, principal: Principal, provider: Provider, sandbox: SandboxRecord, verb: Verb
    ) -> None:
        try:
            if sandbox.state in _ASLEEP:
                await self._making.networks.apply(sandbox, is_waking=True)
            await verb(provider, ref_of(sandbox))
        except NotFound:
            if not await is_lost(provider, sandbox):
                raise
            lost = await self._lost(principal, sandbox)
            raise Conflict(
                f"sandbox {sandbox.name} is lost: {lost.detail}",
                remediation="delete it, and create another or restore a snapshot",
            ) from None

    async def _note(
        self, principal: Principal, sandbox: SandboxRecord, seen: Observation
    ) -> SandboxRecord:
        if seen.state in (SandboxState.DELETING, SandboxState.DELETED):
            return await self._lost(principal, sandbox)  # nobody here asked for that

        def caught_up(current: SandboxRecord) -> SandboxRecord:
            if seen.state in (current.state, SandboxState.CREATING):
                return current
            now = self._clock.wall()
            return moved(current, seen.state, now, reason=seen.reason, detail=seen.detail)

        if seen.state is not SandboxState.RUNNING:
            await self._guests.forget(sandbox.id)
        return await self._changes.apply(sandbox.id, caught_up, principal)

    async def _lost(self, principal: Principal, sandbox: SandboxRecord) -> SandboxRecord:
        await self._guests.forget(sandbox.id)
        detail = f"provider {sandbox.provider} does not know it any more"
        return await self._changes.apply(
            sandbox.id,
            lambda current: moved(
                current,
                SandboxState.FAILED,
                self._clock.wall(),
                reason=Reason.PROVIDER_LOST,
                detail=detail,
            ),
            principal,
        )

    async def _finish_deleting(self, principal: Principal, sandbox: SandboxRecord) -> SandboxRecord:
        """When the provider cannot now, the sandbox stays `deleting` and the sweep tries again."""
        await self._guests.forget(sandbox.id)
        if sandbox.ref:
            try:
                await self._providers.get(sandbox.provider).destroy(ref_of(sandbox))
            except ProviderError as error:
                if not error.retryable:
                    raise
                return sandbox
        self._activity.forget(sandbox.id)
        return await self._changes.apply(
            sandbox.id,
            lambda current: moved(
                current, SandboxState.DELETED, self._clock.wall(), reason=current.reason
            ),
            principal,
        )

    async def losses(self, sandbox: SandboxRecord) -> str:
        """What would be lost if it went now, in words; empty when nothing would be."""
        for hold in self.holds:
            if loss := await hold(sandbox):
                return loss
        return ""

    async def _check_breaks_off(self, principal: Principal, name: str) -> None:
        sandbox = await self._changes.find(principal.team_id, name)
        for guard in self.stop_guards if sandbox.state is SandboxState.RUNNING else ():
            if work := await guard(sandbox):
                raise Conflict(
                    f"{work} runs in sandbox {sandbox.name}; a stop would interrupt it",
                    remediation="wait until it ends, or cancel it with `paddock task cancel`",
                )

    async def _say_farewell(self, sandbox: SandboxRecord, *, force: bool) -> None:
        for farewell in self.farewells:
            try:
                await farewell(sandbox)
            except PaddockError as error:
                if not force:
                    raise
                details = {"id": sandbox.id, "error": error.message}
                _log.warning("deleted without what should come first", extra=details)

    async def _check_holds(self, sandbox: SandboxRecord) -> None:
        if loss := await self.losses(sandbox):
            raise Conflict(
                f"sandbox {sandbox.name} holds work that is nowhere else: {loss}",
                remediation="extract it first, or lose it with --force (`force` in the API)",
            )
