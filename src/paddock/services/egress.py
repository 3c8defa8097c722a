"""What sandboxes may reach: what presets, templates, apps and sandboxes want, put in force."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from paddock.domain.egress import EgressPolicy, EgressWish, NetworkMode, addresses
from paddock.domain.egress.combining import Effective, Say, combined, preset_of
from paddock.domain.egress.deciding import Asked, Decision, judge_connection, judge_request
from paddock.domain.egress.policy import wish_of
from paddock.domain.egress.rule import parse
from paddock.domain.errors import InvalidRequest, NotFound, PaddockError, Unsupported
from paddock.domain.event import EventKind
from paddock.domain.records import SandboxRecord, check_name
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.alongside import alongside, every
from paddock.services.changes import Changes
from paddock.services.egress_changes import (
    OPERATORS,
    PREFIX,
    Held,
    Holder,
    changed,
    check_may_change,
    check_rules,
    key_of,
    with_rules,
    write,
)
from paddock.services.enforcing import Enforcing
from paddock.services.granted import Granted
from paddock.services.provider_templates import Kept
from paddock.services.providers import Providers

_log = logging.getLogger(__name__)
_WITH_A_NETWORK_OF_THEIR_OWN = ("runsc",)
"""Runtimes that no provider fences yet; one that is asked for an allowlist refuses it itself."""
_POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What is in force for a sandbox, and what of it is its own."""

    effective: Effective
    own: EgressWish
    preset: str


class Egress:
    """Policies are put together here; the providers enforce them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        changes: Changes,
        providers: Providers,
        *,
        granted: Granted,
        shipped: Mapping[str, Sequence[str]],
        preset: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._changes = changes
        self._providers = providers
        self._granted = granted
        self.shipped = {name: EgressWish(rules=tuple(rules)) for name, rules in shipped.items()}
        """The presets that come with Paddock, by name."""
        self._preset = preset
        self._kept: dict[str, EgressWish] = {}
        self._turn = asyncio.Lock()
        self._enforcing = Enforcing(store, changes, providers, policy=self.policy)

    def chosen(
        self, principal: Principal, record: SandboxRecord, asked: EgressWish | None
    ) -> EgressWish:
        """What a new sandbox has as its own. Its mode is settled here, for good unless changed.

        Where nobody says, it is an allowlist, and where the provider has none, nothing.
        """
        if asked is not None:
            check_rules(principal, asked.rules)
            self._check_preset(asked)
        able = self._providers.get(record.provider).capabilities
        fenced = able.allowlist and self._runtime(record) not in _WITH_A_NETWORK_OF_THEIR_OWN
        default = NetworkMode.ALLOWLIST if fenced else NetworkMode.NONE
        found = self._combined(record, default)
        self._check_able(record, found.policy.mode)
        return replace(record.egress, mode=found.wanted)

    def _runtime(self, record: SandboxRecord) -> str:
        """What was asked for, or what its template says; empty leaves it to the provider."""
        kept = self._providers.templates.get(record.provider)
        if record.runtime or not isinstance(kept, Kept):
            return record.runtime
        try:
            return kept.recipes.recipe(record.template).runtime
        except PaddockError:
            return ""  # an image, or one that nobody knows: who makes it will say so

    def _check_able(self, sandbox: SandboxRecord, mode: NetworkMode | None) -> None:
        runtime = self._runtime(sandbox)
        if mode is NetworkMode.ALLOWLIST and runtime in _WITH_A_NETWORK_OF_THEIR_OWN:
            raise Unsupported(
                f"the runtime {runtime} has a network of its own, which no allowlist can be put "
                "around",
                remediation="use the network `none`, or another runtime",
            )
        able = self._providers.get(sandbox.provider).capabilities
        lacks = "live_egress" if sandbox.ref and not able.live_egress else ""
        if mode is NetworkMode.ALLOWLIST and not able.allowlist:
            lacks = "allowlist"
        if lacks:
            raise Unsupported(
                f"provider {sandbox.provider} cannot do that: its capability `{lacks}` is off",
                remediation="make a sandbox with the network `none`, or with `open` where neither "
                "its preset nor its template or app denies anything, or use another provider",
            )

    def policy(self, record: SandboxRecord) -> EgressPolicy:
        """What its provider is to enforce."""
        return self._combined(record).policy

    async def get(self, principal: Principal, name: str) -> Standing:
        """What is in force for a sandbox, rule by rule, with where each comes from."""
        principal.require(Scope.SANDBOXES_READ)
        return self._standing(await self._changes.find(principal.team_id, name))

    async def put(self, principal: Principal, name: str, wish: EgressWish) -> Standing:
        """A sandbox's own; in force when this returns. Connections it does not allow are closed.

        What was granted to its task goes: who sets a policy has seen all that is in force.
        """
        principal.require(Scope.SANDBOXES_WRITE)
        check_rules(principal, wish.rules)
        self._check_preset(wish)
        sandbox = await self._changes.living(principal.team_id, name)
        rules = tuple(parse(rule).text for rule in wish.rules)

        def whole(current: EgressWish) -> EgressWish:
            return replace(wish, mode=wish.mode or current.mode, rules=rules)

        return await self._change(principal, sandbox, whole, ends_granted=True)

    async def allow(self, principal: Principal, name: str, rules: Sequence[str]) -> Standing:
        """Rules put before a sandbox's own. One that is closed begins to have an allowlist."""
        principal.require(Scope.SANDBOXES_WRITE)
        check_rules(principal, rules)
        sandbox = await self._changes.living(principal.team_id, name)

        def more(current: EgressWish) -> EgressWish:
            if current.mode is NetworkMode.OPEN:
                raise InvalidRequest(
                    f"sandbox {sandbox.name} has an open network, where everything is allowed",
                    remediation=f"`paddock egress set {sandbox.name} --mode allowlist` first",
                )
            if current.mode is NetworkMode.NONE:  # no more than what is asked for
                preset = current.preset or ""
                current = replace(current, mode=NetworkMode.ALLOWLIST, preset=preset)
            return with_rules(current, rules)

        return await self._change(principal, sandbox, more)

    async def test(self, principal: Principal, name: str, asked: Asked) -> Decision:
        """What would become of a connection, or of a request where a method is given."""
        standing = await self.get(principal, name)
        policy = standing.effective.policy
        if policy.mode is NetworkMode.OPEN:
            return Decision(allowed=not (asked.address and addresses.is_for_nobody(asked.address)))
        rules = [parse(rule.text) for rule in policy.rules]
        if asked.address and addresses.objection(rules, [asked.address], asked.port, literal=True):
            return Decision(allowed=False)
        if asked.method:
            return judge_request(rules, asked)
        return judge_connection(rules, asked.name, asked.address, asked.port).whole

    async def of(self, principal: Principal, holder: Holder, name: str) -> EgressWish:
        """What a preset, a template or an app has of its own; NotFound when nothing."""
        reads = Scope.SANDBOXES_READ if holder is Holder.APP else Scope.TEMPLATES_READ
        principal.require(reads)
        found = self._kept.get(key_of(principal.team_id, holder, name))
        if found is None and holder is Holder.PRESET:
            found = self.shipped.get(name)
        if found is None:
            raise NotFound(
                f"there is no egress policy of the {holder} {name[:80]}",
                remediation="`paddock egress set` makes one",
            )
        return found

    async def presets(self, principal: Principal) -> list[str]:
        principal.require(Scope.TEMPLATES_READ)
        own = (key for key in self._kept if key.startswith(f"{Holder.PRESET}."))
        return sorted({*self.shipped, *(key.partition(".")[2] for key in own)})

    async def put_on(
        self, principal: Principal, holder: Holder, name: str, wish: EgressWish | None
    ) -> EgressWish | None:
        """In force for all sandboxes that it concerns when this returns; None takes it away."""
        check_may_change(principal, holder)
        if holder is not Holder.TEMPLATE:
            check_name(name)
        if wish is not None:
            check_rules(principal, wish.rules)
            self._check_preset(wish)
        held, now = self._held(principal.team_id, holder, name), self._clock.wall()
        await self._store.write(lambda tx: write(tx, principal, held, wish, now=now))
        await self.apply()
        return wish

    def allow_in(
        self,
        tx: Transaction,
        principal: Principal,
        sandbox: SandboxRecord,
        *,
        holder: Holder,
        rule: str,
    ) -> None:
        """One rule more of the sandbox itself, or of the app, template or preset that it has;
        `apply` it afterwards."""
        check_rules(principal, [rule])
        if holder is Holder.SANDBOX:
            principal.require(Scope.SANDBOXES_WRITE)
            self._write(tx, principal, sandbox.id, lambda own: with_rules(own, [rule]))
            return
        check_may_change(principal, holder)
        held = self._held(sandbox.team_id, holder, self._name_of(holder, sandbox))
        wish = with_rules(held.now(tx) or EgressWish(), [rule])
        write(tx, principal, held, wish, now=self._clock.wall())

    def _name_of(self, holder: Holder, sandbox: SandboxRecord) -> str:
        names = {
            Holder.APP: sandbox.app,
            Holder.TEMPLATE: sandbox.template,
            Holder.PRESET: self._preset_of(sandbox),
        }
        if name := names[holder]:
            return name
        raise InvalidRequest(
            f"sandbox {sandbox.name} has no {holder}",
            remediation="put the rule elsewhere, or on the sandbox itself",
        )

    def _held(self, team_id: str, holder: Holder, name: str) -> Held:
        """Where the rules of a preset, a template or an app are kept."""
        shipped = self.shipped.get(name) if holder is Holder.PRESET else None
        return Held(holder, name, team_id, shipped)

    async def apply(self, sandbox: SandboxRecord | None = None, *, is_waking: bool = False) -> None:
        """A sandbox has the policy that it should have now; unless one is given, every sandbox has
        that could reach anything, by what is kept now."""
        if sandbox is not None:
            if not is_waking or self._may_have_changed(sandbox):
                await self._enforcing.one(sandbox)
            return
        await self._load()
        await self._enforcing.all(self._may_have_changed)

    def _may_have_changed(self, sandbox: SandboxRecord) -> bool:
        """An open network has rules while somebody denies something, and none afterwards."""
        if sandbox.egress.mode is not NetworkMode.OPEN:
            return sandbox.egress.mode is NetworkMode.ALLOWLIST
        able = self._providers.get(sandbox.provider).capabilities.allowlist
        fits = able and self._runtime(sandbox) not in _WITH_A_NETWORK_OF_THEIR_OWN
        return fits or self.policy(sandbox).mode is NetworkMode.ALLOWLIST

    async def _load(self) -> bool:
        """Take up what is kept; whether it is anything else. What cannot be read allows nothing."""
        differs = await self._granted.load()
        async with self._turn:  # what was read before is never taken for what was read later
            before = self._kept
            self._kept = _read(await self._store.read(lambda tx: tx.values.all(PREFIX)))
            return differs or self._kept != before

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """What is kept is in force, and what another process changes while this is open."""
        await self._load()
        failed = "egress rules could not be read"
        looking = every(_POLL_S, self._follow, clock=self._clock, failed=failed)
        async with alongside(looking, "egress rules that are late or of other processes"):
            yield

    async def _follow(self) -> None:
        if self._store.is_shared and await self._load():
            await self._enforcing.all(self._may_have_changed)
        await self._enforcing.again()

    def _preset_of(self, sandbox: SandboxRecord) -> str:
        return preset_of(self._says(sandbox), self._preset)

    def _standing(self, sandbox: SandboxRecord) -> Standing:
        return Standing(self._combined(sandbox), sandbox.egress, self._preset_of(sandbox))

    def _combined(
        self, sandbox: SandboxRecord, default: NetworkMode = NetworkMode.NONE
    ) -> Effective:
        says = self._says(sandbox)
        name = preset_of(says, self._preset)
        preset = self._kept.get(f"{Holder.PRESET}.{name}") or self.shipped.get(name)
        begun = Say(f"{Holder.PRESET} {name}", preset or EgressWish(), is_operator=True)
        return combined([begun, *says], default, self._granted.rules(sandbox))

    def _says(self, sandbox: SandboxRecord) -> list[Say]:
        """Of the template, the app and the sandbox."""
        team = sandbox.team_id
        found = [
            Say(
                f"{holder} {name}",
                self._kept.get(key_of(team, holder, name), EgressWish()),
                is_operator=holder in OPERATORS,
            )
            for holder, name in ((Holder.TEMPLATE, sandbox.template), (Holder.APP, sandbox.app))
            if name
        ]
        return [*found, Say(Holder.SANDBOX, sandbox.egress)]

    def _check_preset(self, wish: EgressWish) -> None:
        begins = f"{Holder.PRESET}."
        kept = (key.removeprefix(begins) for key in self._kept if key.startswith(begins))
        known = {*self.shipped, *kept}
        if wish.preset and wish.preset not in known:
            raise NotFound(
                f"there is no preset {wish.preset[:80]!r}",
                remediation=f"use one of: {', '.join(sorted(self.shipped))}",
            )

    async def _change(
        self,
        principal: Principal,
        sandbox: SandboxRecord,
        step: Callable[[EgressWish], EgressWish],
        *,
        ends_granted: bool = False,
    ) -> Standing:
        def write(tx: Transaction) -> SandboxRecord:
            stored = self._write(tx, principal, sandbox.id, step)
            if ends_granted:  # with the change or, where that is refused, not at all
                self._granted.take_away(tx, principal, stored)
            return stored

        async with self._changes.alone(sandbox.id):
            try:
                stored = await self._store.write(write)
            finally:
                self._changes.forget(sandbox.id)
            if ends_granted:
                await self._granted.load()
            await self.apply(stored)
        return self._standing(stored)

    def _write(
        self,
        tx: Transaction,
        principal: Principal,
        sandbox_id: str,
        step: Callable[[EgressWish], EgressWish],
    ) -> SandboxRecord:
        return self._changes.write(
            tx,
            sandbox_id,
            lambda current: self._changed(current, step),
            principal,
            action=EventKind.EGRESS_CHANGED,
            detail=_told,
        )

    def _changed(
        self, sandbox: SandboxRecord, step: Callable[[EgressWish], EgressWish]
    ) -> SandboxRecord:
        """One whose own rules are others. What cannot be in force is refused."""
        after = replace(sandbox, egress=step(sandbox.egress))
        self._check_able(after, self._combined(after).policy.mode)  # nor too many rules
        return after


def _read(kept: Mapping[str, object]) -> dict[str, EgressWish]:
    found = {}
    for name, value in kept.items():
        try:
            found[name.removeprefix(PREFIX)] = wish_of(value)
        except PaddockError as error:
            _log.error("egress rules not understood", extra={"of": name, "why": error.message})
            found[name.removeprefix(PREFIX)] = EgressWish(NetworkMode.NONE, "")
    return found


def _told(before: SandboxRecord, after: SandboxRecord) -> dict[str, object]:
    """What the audit log says of a change of a sandbox's own rules."""
    return {"of": Holder.SANDBOX, **changed(before.egress, after.egress)}
