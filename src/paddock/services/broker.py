"""Credentials in sandboxes: a placeholder inside, the value at the gateway, both kept in step."""

import asyncio
import hashlib
import hmac
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from paddock.domain.broker.binding import Binding, Way, dialect_of, host_rule, unusable, url_inside
from paddock.domain.broker.headers import OwnHeader
from paddock.domain.broker.masking import secret_values
from paddock.domain.egress import EgressPolicy, NetworkMode
from paddock.domain.egress.deciding import judge_connection
from paddock.domain.egress.rule import parse
from paddock.domain.errors import NotFound, PaddockError
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.secret import TEAM_SCOPE, app_of
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.egress import Credential, FlowSource
from paddock.ports.store import SandboxFilter, Store
from paddock.services.bindings import Bindings
from paddock.services.changes import Changes
from paddock.services.exposing import Exposing
from paddock.services.headers import Headers
from paddock.services.lent import Lent
from paddock.services.networks import Networks
from paddock.services.secrets import Secrets
from paddock.services.spending import Spending, Used, account_of

_log = logging.getLogger(__name__)
_EVERY_S = 2.0
_SHOWN_NAME = 24
_MOST_REMEMBERED = 10_000
Tell = Callable[[dict[str, str]], Awaitable[None]]
_UNKNOWN = "?"
"""No mark: what a gateway has of a sandbox, nobody has asked."""
_WITH_MACHINE = frozenset({SandboxState.RUNNING, SandboxState.PAUSED})
_HELPER = (
    '!f() {{ test "$1" = get && printf "username=%s\\npassword=%s\\n" "{user}" "{shown}"; }}; f'
)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a binding stands for one sandbox."""

    binding: Binding
    placeholder: str
    exposed: bool
    works: bool
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class ModelStanding:
    """The routes of a sandbox, and what its account took."""

    account: str
    routes: Sequence[Binding]
    used: Sequence[Used]


class Broker:
    """The value goes from the vault to the gateway, by memory alone."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        secrets: Secrets,
        bindings: Bindings,
        *,
        changes: Changes,
        exposing: Exposing,
        lent: Lent,
        networks: Networks,
        gateways: Mapping[str, FlowSource],
        spending: Spending,
        headers: Headers,
        key: bytes,
    ) -> None:
        self._store = store
        self._clock = clock
        self._secrets = secrets
        self._bindings = bindings
        self._changes = changes
        self._exposing = exposing
        self._lent = lent
        self._networks = networks
        self._gateways = gateways
        self._key = key
        self.spending = spending
        self._headers = headers
        self._given: dict[str, tuple[str, str, str, int]] = {}
        """By sandbox: the mark, and what it was made of."""
        self._editions: Counter[str] = Counter()
        """Of all that is bound, by team: another one after every change. Changes by who knows
        which team are counted for nobody, that is for all."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        bindings.heard.append(self.refresh)
        secrets.heard.append(self.refresh)
        headers.heard.append(self._others)
        headers.objection = self._unable

    def concerns(self, sandbox: SandboxRecord) -> bool:
        return sandbox.id in self._headers.sandboxes or bool(self._bindings.of(sandbox))

    def bound(self, sandbox: SandboxRecord) -> frozenset[str]:
        """Its secrets that are bound, by name."""
        return frozenset(each.secret for each in self._bindings.of(sandbox))

    def placeholder(self, sandbox: SandboxRecord, binding: Binding) -> str:
        """Nobody can guess it, and it is the same whenever it is asked for."""
        said = f"{sandbox.id}|{binding.scope}|{binding.secret}".encode()
        digest = hmac.new(self._key, said, hashlib.sha256).hexdigest()[:40]
        shown = "".join(c for c in binding.secret if c.isalnum() or c == "_")[:_SHOWN_NAME]
        return f"pdk-{shown}-{digest}"

    async def inform(self, sandbox: SandboxRecord, tell: Tell) -> None:
        """Have somebody tell its guest the variables of what is bound: what was bound later is
        told later."""
        async with self._turn(sandbox):
            await tell(await self._environment(sandbox))

    async def _environment(self, sandbox: SandboxRecord) -> dict[str, str]:
        """Placeholders, and what makes git ask for them; values where that was asked for, which
        are known from then on."""
        found: dict[str, str] = {}
        lent: dict[str, str] = {}
        inside: dict[str, str] = {}
        git: list[tuple[str, str]] = []
        edition = self._edition(sandbox.team_id)
        for binding in self._bindings.of(sandbox):
            shown = self.placeholder(sandbox, binding)
            if binding.env:
                value = await self._exposing.value(sandbox, binding)
                if value:
                    lent[value], inside[binding.env] = shown, binding.secret
                found[binding.env] = value or found.get(binding.env) or shown
            if binding.way is Way.MODEL:
                name, url = url_inside(binding)
                found[name] = url
            if binding.way is Way.GIT:
                git += [
                    (host, _HELPER.format(user=binding.user, shown=shown)) for host in binding.hosts
                ]
        await self.lend(sandbox, lent)
        self._exposing.expect(sandbox, inside, edition)
        for number, (host, helper) in enumerate(git):
            found[f"GIT_CONFIG_KEY_{number}"] = f"credential.https://{host}.helper"
            found[f"GIT_CONFIG_VALUE_{number}"] = helper
        if git:
            found["GIT_CONFIG_COUNT"] = str(len(git))
        return found

    async def lend(self, sandbox: SandboxRecord, values: Mapping[str, str]) -> None:
        """Values that its programs are about to have, and what is kept in the place of each."""
        await self._lent.keep(sandbox, values)

    async def give(self, sandbox: SandboxRecord) -> None:
        """A machine that has just begun to run, or has others now: its gateway has the values."""
        gateway = self._gateways.get(sandbox.provider)
        known = self.concerns(sandbox) or sandbox.id in self._given
        if gateway is None or not sandbox.ref or not known:
            return
        await self._give(gateway, sandbox)
        await self._exposing.note(sandbox)

    async def _others(self, sandbox: SandboxRecord) -> None:
        self._editions[sandbox.team_id] += 1
        await self.give(sandbox)

    def _edition(self, team_id: str) -> int:
        return self._editions[team_id] + self._editions[""]

    def _turn(self, sandbox: SandboxRecord) -> asyncio.Lock:
        """One at a time for a sandbox: what was bound later is told later."""
        return self._turns.setdefault(sandbox.id, asyncio.Lock())

    async def _give(
        self, gateway: FlowSource, sandbox: SandboxRecord, before: str = _UNKNOWN
    ) -> None:
        async with self._turn(sandbox):
            last = self._given.get(sandbox.id, (_UNKNOWN,))[0]
            edition = self._edition(sandbox.team_id)
            bound, own = self._bindings.of(sandbox), self._headers.of(sandbox)
            credentials = [await self._credential(sandbox, each) for each in bound]
            credentials += [await self._own(sandbox, each) for each in own]
            mark = _mark(credentials, self._key) if credentials else ""
            self._given[sandbox.id] = (mark, account_of(sandbox), sandbox.name, edition)
            if mark == before and last in (before, _UNKNOWN):
                return
            if await gateway.give(sandbox.ref, mark, credentials):
                _log.info("credentials given", extra={"id": sandbox.id, "count": len(credentials)})

    async def _valued(self, binding: Binding) -> tuple[str, str]:
        """The value, or what keeps it from being one."""
        try:
            _, value = await self._exposing.look(binding)
        except NotFound:
            return "", f"the secret {binding.secret} was taken back: it has no value any more"
        except PaddockError as error:
            return "", f"the secret {binding.secret} cannot be read: {error.message}"
        if why := unusable(value):
            return "", f"the secret {binding.secret} cannot be put into a request: {why}"
        return value, ""

    async def _own(self, sandbox: SandboxRecord, header: OwnHeader) -> Credential:
        bound = Binding(sandbox.team_id, TEAM_SCOPE, header.name, Way.HEADER, (header.host,))
        value, lacks = await self._valued(bound) if header.secret else (header.value, "")
        return Credential(
            secret=header.name,
            placeholder=self.placeholder(sandbox, bound) if header.is_secret else "",
            hosts=[header.host],
            way=Way.HEADER,
            value=value,
            header=header.header,
            format=header.format,
            own=True,
            lacks=lacks,
            remedy="whoever administers the team's secrets can set it anew: `paddock secrets set "
            f"{header.secret}`",
        )

    async def _credential(self, sandbox: SandboxRecord, binding: Binding) -> Credential:
        value, lacks = await self._valued(binding)
        more = f" --app {app_of(binding.scope)}" if app_of(binding.scope) else ""
        return Credential(
            secret=binding.secret,
            placeholder=self.placeholder(sandbox, binding),
            hosts=list(binding.hosts),
            way=binding.way,
            value=value,
            header=binding.header,
            format=binding.format,
            user=binding.user,
            parameter=binding.parameter,
            expires_at=binding.expires_at,
            lacks=lacks,
            **await self._route(sandbox, binding),
            remedy="whoever administers the team's secrets can set it and bind it anew: `paddock "
            f"secrets set {binding.secret}{more}`, `paddock secrets bind {binding.secret}{more}`",
        )

    async def _route(self, sandbox: SandboxRecord, binding: Binding) -> dict[str, Any]:
        if binding.way is not Way.MODEL:
            return {}
        account = account_of(sandbox)
        return {
            "route": binding.route,
            "dialect": dialect_of(binding.route),
            "base_path": binding.base_path,
            "plain": binding.is_plain,
            "account": account,
            "limit": binding.spend_limit_usd,
            "spent": await self.spending.spent(account),
        }

    async def exposed(self, sandbox: SandboxRecord) -> list[str]:
        """Secrets whose values a sandbox's programs have, by name."""
        return await self._exposing.names(sandbox)

    async def inside(self, sandbox: SandboxRecord) -> dict[str, str]:
        """What must not be kept of what its programs tell, and what stands for each."""
        known = secret_values(sandbox.env) | await self._lent.of(sandbox)
        return known | await self._exposing.values(sandbox, self.placeholder)

    async def models(self, principal: Principal, name: str) -> ModelStanding:
        """What a sandbox, or all of its task, has taken of model APIs."""
        principal.require(Scope.SANDBOXES_READ)
        sandbox = await self._changes.find(principal.team_id, name)
        account = account_of(sandbox)
        routes = [each for each in self._bindings.of(sandbox) if each.way is Way.MODEL]
        return ModelStanding(account, routes, await self.spending.used(account))

    async def standing(self, principal: Principal, name: str) -> Sequence[Standing]:
        """What a sandbox has, and what keeps any of it from working."""
        principal.require(Scope.SANDBOXES_READ)
        sandbox = await self._changes.find(principal.team_id, name)
        exposed = await self.exposed(sandbox)
        return [
            Standing(
                each,
                self.placeholder(sandbox, each),
                each.secret in exposed,
                works=not (why := await self._why_not(sandbox, each)),
                why_not=why,
            )
            for each in self._bindings.of(sandbox)
        ]

    async def _why_not(self, sandbox: SandboxRecord, binding: Binding) -> str:
        if why := self._unable(sandbox, binding.way):
            return why
        credential = await self._credential(sandbox, binding)
        if credential.lacks:
            return credential.lacks
        if self._exposing.is_over(binding):
            return f"the binding of {binding.secret} has expired"
        policy = self._networks.policy(sandbox)
        return "" if binding.way is Way.MODEL else _closed(policy, binding)

    def _unable(self, sandbox: SandboxRecord, way: Way = Way.HEADER) -> str:
        """Why nothing can be put into its requests, whatever is bound."""
        mode = self._networks.policy(sandbox).mode
        if mode is not NetworkMode.ALLOWLIST:
            return f"its network is {mode}, so nothing of it goes through the gateway"
        gateway = self._gateways.get(sandbox.provider)
        able = gateway is not None and (way is Way.MODEL or gateway.looks_into_tls)
        missing = f"the gateway of provider {sandbox.provider} does not put secrets into requests"
        return "" if able else missing

    async def refresh(self, team_id: str) -> None:
        """All of a team's sandboxes that run have the credentials of now."""
        self._editions[team_id] += 1
        await self._in_step(team_id)

    async def run(self) -> None:
        """Until cancelled: gateways that were started anew, and what other processes changed."""
        await self.spending.tell()
        await self.spending.forget_gone()
        while True:
            await self._clock.sleep(self._patience())
            try:
                await self._load()
                await self._in_step()
                while self._store.is_shared and await self._load():
                    await self._in_step()  # or what another process took away would be back
                await self._lent.sweep()
            except PaddockError as error:
                _log.warning("credentials not in step", extra={"why": error.message})

    async def _load(self) -> bool:
        differs = any([await self._bindings.load(), await self._headers.load()])
        self._editions[""] += differs
        return differs

    def _patience(self) -> float:
        """Until something may have changed elsewhere, or a value's time inside is over."""
        end = self._exposing.next_end()
        return _EVERY_S if end is None else max(0.0, min(_EVERY_S, end - self._clock.wall()))

    async def _in_step(self, team_id: str = "") -> None:
        """Every sandbox; those of a team anew, whatever they seem to have."""
        if len(self._given) > _MOST_REMEMBERED:
            self._given.clear()
        marks = {name: await each.marks() or {} for name, each in self._gateways.items()}
        held = any(mark for each in marks.values() for mark in each.values())
        concerned = held or self._bindings.teams or self._headers.sandboxes
        if not concerned and self._exposing.is_empty:
            return
        async for sandbox in self._changes.each(SandboxFilter(states=_WITH_MACHINE)):
            if team_id not in ("", sandbox.team_id):
                continue
            mark = marks.get(sandbox.provider, {}).get(sandbox.ref)
            try:
                if mark is not None and (team_id or not self._is_settled(sandbox, mark)):
                    await self._give(self._gateways[sandbox.provider], sandbox, mark)
                if team_id or self._exposing.is_late(sandbox, self._edition(sandbox.team_id)):
                    await self._tell(sandbox, again=not team_id)
            except PaddockError as error:
                told = {"id": sandbox.id, "why": error.message}
                _log.warning("credentials not given", extra=told)

    async def _tell(self, sandbox: SandboxRecord, *, again: bool) -> None:
        await self.inform(sandbox, partial(self._exposing.tell, sandbox, again=again))

    def _is_settled(self, sandbox: SandboxRecord, mark: str) -> bool:
        """It has what it was given, and nobody else could have changed what it should have."""
        if self._store.is_shared:
            return False
        now = (mark, account_of(sandbox), sandbox.name, self._edition(sandbox.team_id))
        return self._given.get(sandbox.id) == now


def _closed(policy: EgressPolicy, binding: Binding) -> str:
    """Of the hosts that are named in full, whether every one is out of reach."""
    rules = [parse(rule.text) for rule in policy.rules]
    plain = [host_rule(host) for host in binding.hosts if not host.startswith("*")]
    closed = [
        each.text
        for each in plain
        if not judge_connection(rules, each.host, "", each.ports[0][0]).whole.allowed
    ]
    return (
        f"no rule lets it reach {', '.join(closed)}" if plain and len(closed) == len(plain) else ""
    )


def _mark(credentials: Sequence[Credential], key: bytes) -> str:
    """Tells two sets of credentials apart, and nothing about them."""
    said = repr([(replace(each, spent=0.0), each.value) for each in credentials]).encode()
    return hmac.new(key, said, hashlib.sha256).hexdigest()[:32]
