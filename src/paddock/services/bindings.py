"""Bindings of secrets: which hosts each may be sent to, and how."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from paddock.domain.audit import AuditEntry
from paddock.domain.broker.binding import Binding, Way, completed, unusable
from paddock.domain.errors import Forbidden, InvalidRequest, NotFound, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.records import SandboxRecord
from paddock.domain.secret import TEAM_SCOPE, AccessPolicy, Secret, app_of, scope_of
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.secrets import Secrets

_log = logging.getLogger(__name__)
_PREFIX = "binding."
MOST = 64
"""Of a team, and of each of its apps."""
Heard = Callable[[str], Awaitable[None]]


class Bindings:
    """Kept with the team's other settings, and all of them in memory."""

    def __init__(self, store: Store, clock: Clock, secrets: Secrets) -> None:
        self._store = store
        self._clock = clock
        self._secrets = secrets
        self._kept: dict[str, Binding] = {}
        self._turn = asyncio.Lock()
        self.heard: list[Heard] = []
        """Told the team whose bindings are others now."""

    async def put(self, principal: Principal, wish: Binding) -> Binding:
        """In force for all sandboxes that it is for when this returns."""
        principal.require(Scope.SECRETS_WRITE)
        found, value = await self._secrets.look(wish.team_id, wish.secret, app_of(wish.scope))
        binding = completed(replace(wish, changed_at=self._clock.wall()))
        if binding.expires_at is not None and binding.expires_at <= binding.changed_at:
            raise InvalidRequest(
                f"the binding of {binding.secret} would have expired already",
                remediation="give a time to come, or none",
            )
        _check_use(binding, found, value)
        if binding.is_plain and not principal.operator:
            raise Forbidden(
                f"route {binding.route} uses plain HTTP ({binding.base_url}), which does not "
                "authenticate the server: only operators may set it",
                remediation="ask an operator, or give a base URL that begins with https://",
            )
        key = _key(binding.team_id, binding.scope, binding.secret, binding.way)
        self._check_room(key, binding)

        def write(tx: Transaction) -> None:
            before = dict(_read([(key, tx.values.get(_PREFIX + key))])).get(key)
            tx.values.put(_PREFIX + key, asdict(binding))
            self._note(tx, principal, binding, EventKind.SECRET_BOUND, before=before)

        await self._store.write(write)
        await self._changed(principal.team_id)
        return binding

    def _check_room(self, key: str, binding: Binding) -> None:
        same = [each for each in self._kept.values() if _place(each) == _place(binding)]
        if len(same) >= MOST and key not in self._kept:
            raise InvalidRequest(
                f"there are {len(same)} bindings already; {MOST} is the most",
                remediation="unbind those that are not used: `paddock secrets bindings`",
            )

    async def remove(self, principal: Principal, secret: str, way: Way, app: str = "") -> None:
        principal.require(Scope.SECRETS_WRITE)
        key = _key(principal.team_id, scope_of(app), secret, way)
        found = self._kept.get(key)
        if found is None:
            raise NotFound(
                f"{secret[:80]} is not bound as {way}",
                remediation="`paddock secrets bindings` shows what is",
            )

        def write(tx: Transaction) -> None:
            tx.values.remove(_PREFIX + key)
            self._note(tx, principal, found, EventKind.SECRET_UNBOUND)

        await self._store.write(write)
        await self._changed(principal.team_id)

    async def list(
        self, principal: Principal, app: str = "", secret: str = ""
    ) -> Sequence[Binding]:
        """Of the team or of one of its apps, by secret."""
        principal.require(Scope.SECRETS_READ)
        place = (principal.team_id, scope_of(app))
        found = [each for each in self._kept.values() if _place(each) == place]
        wanted = [each for each in found if secret in ("", each.secret)]
        return sorted(wanted, key=lambda each: (each.secret, each.way))

    def of(self, sandbox: SandboxRecord) -> Sequence[Binding]:
        """All that a sandbox has: the team's, and over them those of its app."""
        found = self._nearest(sandbox.team_id, sandbox.app)
        return [each for each in found if each.is_for(sandbox.id, sandbox.name)]

    def of_any(self, team_id: str, app: str) -> Sequence[Binding]:
        """What every sandbox of the team and the app has, also one that is not made yet."""
        return [each for each in self._nearest(team_id, app) if not each.sandboxes]

    def _nearest(self, team_id: str, app: str) -> Sequence[Binding]:
        scopes = [TEAM_SCOPE, *([scope_of(app)] if app else [])]
        kept = [each for each in self._kept.values() if each.team_id == team_id]
        nearest: dict[str, str] = {}
        for scope in scopes:
            nearest.update({each.secret: scope for each in kept if each.scope == scope})
        found = [each for each in kept if nearest.get(each.secret) == each.scope]
        return sorted(found, key=lambda each: (each.secret, each.way))

    @property
    def teams(self) -> frozenset[str]:
        """Those that have any."""
        return frozenset(each.team_id for each in self._kept.values())

    def all_exposed(self) -> Sequence[Binding]:
        """Of every team, those whose values are inside."""
        return [each for each in self._kept.values() if each.expose]

    async def load(self) -> bool:
        """Take up what is kept; whether that differs from before."""
        async with self._turn:  # what was read before is never taken for what was read later
            kept = await self._store.read(lambda tx: tx.values.all(_PREFIX))
            found = dict(_read(kept.items()))
            differs, self._kept = found != self._kept, found
        return differs

    async def _changed(self, team_id: str) -> None:
        await self.load()
        for each in self.heard:
            await each(team_id)

    def _note(
        self,
        tx: Transaction,
        principal: Principal,
        binding: Binding,
        kind: EventKind,
        *,
        before: Binding | None = None,
    ) -> None:
        now, actor, team = self._clock.wall(), principal.actor, binding.team_id
        detail = _told(binding)
        if kind is EventKind.SECRET_BOUND:
            detail["before"] = _told(before) if before is not None else None
        tx.events.append([Event(team, kind, binding.secret, now, detail, actor)])
        tx.audit.append([AuditEntry(team, actor, kind, binding.secret, now, detail)])


def _told(binding: Binding) -> dict[str, Any]:
    """All that a binding says. The value is no part of it."""
    said = asdict(binding)
    for name in ("team_id", "scope", "secret", "changed_at"):
        del said[name]
    lists = {"hosts": list(binding.hosts), "sandboxes": list(binding.sandboxes)}
    return {**said, **lists, "app": app_of(binding.scope)}


def _check_use(binding: Binding, secret: Secret, value: str) -> None:
    if binding.expose and secret.policy is AccessPolicy.CONTROL_PLANE_ONLY:
        raise Forbidden(
            f"{binding.secret} is {secret.policy}: its value is never inside, only its use is",
            remediation="leave `expose` out, or set the secret anew with another policy",
        )
    if why := unusable(value):
        raise InvalidRequest(
            f"{binding.secret} cannot be put into a request: {why}",
            remediation="set it to what a server is sent",
        )


def _place(binding: Binding) -> tuple[str, str]:
    return binding.team_id, binding.scope


def _key(team_id: str, scope: str, secret: str, way: Way) -> str:
    return f"{team_id}.{scope}.{way}.{secret}"


def _read(kept: Iterable[tuple[str, object]]) -> Iterable[tuple[str, Binding]]:
    """What cannot be read binds nothing."""
    for name, value in kept:
        if value is None:
            continue
        try:
            fields = dict(value)  # type: ignore[call-overload]
            fields["way"] = Way(fields["way"])
            fields["hosts"], fields["sandboxes"] = map(
                tuple, (fields["hosts"], fields["sandboxes"])
            )
            yield name.removeprefix(_PREFIX), completed(Binding(**fields))
        except (PaddockError, KeyError, TypeError, ValueError) as error:
            _log.error("binding not understood", extra={"of": name, "why": str(error)})


def forget_app(tx: Transaction, team_id: str, app: str) -> None:
    """An app's bindings go with its secrets."""
    for name in tx.values.all(f"{_PREFIX}{team_id}.{scope_of(app)}."):
        tx.values.remove(name)
