"""Configuration of a team and its apps: sealed as it comes, told only to whom it may be told."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Conflict, InvalidRequest, NotFound
from paddock.domain.event import Event, EventKind
from paddock.domain.secret import (
    LARGEST,
    TEAM_SCOPE,
    AccessPolicy,
    Secret,
    Use,
    app_of,
    associated,
    check_labels,
    check_secret_name,
    check_use,
    is_variable,
    may_go,
    scope_of,
    widens,
)
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Store, Transaction
from paddock.ports.vault import Vault
from paddock.services.once import reseal_answers

_AT_ONCE = 50
_PAGE = 500


@dataclass(frozen=True, slots=True)
class SecretWish:
    """What shall be set; None leaves it as it is, or to the default."""

    value: str | None = field(default=None, repr=False)
    sensitive: bool | None = None
    policy: AccessPolicy | None = None
    labels: Mapping[str, str] | None = None


class Secrets:
    """Values of a team. One that is sensitive is never read again through here."""

    def __init__(self, store: Store, clock: Clock, vault: Vault) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault
        self.heard: list[Callable[[str], Awaitable[None]]] = []
        """Told the team whose values are others now."""
        self.sealed_elsewhere: list[Callable[[Transaction, str], None]] = []
        """Seal with a new key what others keep that the same vault has sealed."""

    async def put(self, principal: Principal, name: str, wish: SecretWish, app: str = "") -> Secret:
        """Set it, or change what is known of it. A value that was sensitive is never revealed:
        to make it readable a new one has to be given."""
        principal.require(Scope.SECRETS_WRITE)
        scope = scope_of(app)
        check_secret_name(name)
        check_labels(wish.labels or {})
        if wish.value is not None and len(wish.value.encode()) > LARGEST:
            raise InvalidRequest(
                f"the value of {name} has more than {LARGEST >> 10} KiB",
                remediation="keep large content in files",
            )
        now = self._clock.wall()

        def write(tx: Transaction) -> Secret:
            before = tx.secrets.get(principal.team_id, scope, name)
            made = self._made((principal.team_id, scope, name), wish, before, now=now)
            tx.secrets.put(made)
            self._note(tx, principal, made, EventKind.SECRET_SET)
            return made

        made = await self._store.write(write)
        await self._tell(principal.team_id)
        return made

    async def _tell(self, team_id: str) -> None:
        for each in self.heard:
            await each(team_id)

    def _made(
        self, place: tuple[str, str, str], wish: SecretWish, before: Secret | None, *, now: float
    ) -> Secret:
        team_id, scope, name = place
        sensitive = before.sensitive if before else True
        sensitive = sensitive if wish.sensitive is None else wish.sensitive
        labels = (before.labels if before else {}) if wish.labels is None else wish.labels
        policy = wish.policy or (before.policy if before else AccessPolicy.CONTROL_PLANE_ONLY)
        if wish.value == "" and sensitive:
            # It is a mistake, such as an unset variable or an empty file.
            raise InvalidRequest(
                f"the value of {name} is empty",
                remediation="give the secret's value, or delete the secret",
            )
        if wish.value is None:
            if before is None:
                raise _missing(name)
            known = replace(
                before, sensitive=sensitive, policy=policy, labels=labels, changed_at=now
            )
            _check_no_wider(before, known)
            return known
        version = before.version + 1 if before else 1
        sealed = self._vault.seal(wish.value.encode(), associated(*place, version))
        return Secret(
            team_id=team_id,
            scope=scope,
            name=name,
            version=version,
            sensitive=sensitive,
            policy=policy,
            key_id=sealed.key_id,
            sealed=sealed.text,
            created_at=before.created_at if before else now,
            changed_at=now,
            labels=labels,
        )

    async def get(
        self, principal: Principal, name: str, app: str = ""
    ) -> tuple[Secret, str | None]:
        """What is known of it, and its value unless it is sensitive."""
        principal.require(Scope.SECRETS_READ)
        secret = await self._find(principal.team_id, scope_of(app), name)
        return secret, None if secret.sensitive else self._open(secret)

    async def list(self, principal: Principal, page: Page, app: str = "") -> Sequence[Secret]:
        """By name, without values."""
        principal.require(Scope.SECRETS_READ)
        scope = scope_of(app)
        return await self._store.read(lambda tx: tx.secrets.list(principal.team_id, scope, page))

    async def delete(self, principal: Principal, name: str, app: str = "") -> None:
        principal.require(Scope.SECRETS_WRITE)
        scope = scope_of(app)

        def remove(tx: Transaction) -> None:
            found = tx.secrets.get(principal.team_id, scope, name)
            if found is None:
                raise _missing(name)
            tx.secrets.remove(principal.team_id, scope, name)
            self._note(tx, principal, found, EventKind.SECRET_DELETED)

        await self._store.write(remove)
        await self._tell(principal.team_id)

    async def look(self, team_id: str, name: str, app: str = "") -> tuple[Secret, str]:
        """With its value, for who sees to it that it goes nowhere where it may not."""
        secret = await self._find(team_id, scope_of(app), name)
        return secret, self._open(secret)

    async def sensitive_names(self, team_id: str, app: str) -> set[str]:
        """Those whose values an app's programs have in their environment."""
        nearest = await self._nearest(team_id, app)
        return {s.name for s in nearest if s.sensitive and may_go(s.policy, Use.RUNTIME)}

    async def values(self, team_id: str, app: str) -> set[str]:
        """All that might be in a sandbox, for who takes them out of what is told."""
        return {self._open(each) for each in await self._nearest(team_id, app) if each.sensitive}

    async def sensitive(self, team_id: str) -> Sequence[tuple[str, str]]:
        """Name and value of all, of every app and also where one hides another, for who keeps them
        out of what is told."""
        found = await self._store.read(lambda tx: tx.secrets.sensitive(team_id))
        return [(each.name, self._open(each)) for each in found]

    async def value_for(self, team_id: str, name: str, use: Use, app: str = "") -> str:
        """For the parts of Paddock that use it; Forbidden where its policy keeps it from going."""
        secret = await self._find(team_id, scope_of(app), name)
        check_use(secret, use)
        return self._open(secret)

    async def environment(self, team_id: str, app: str, use: Use) -> Mapping[str, str]:
        """What goes into the environment of an app's programs: the team's values and over them the
        app's, of each what its policy lets go there."""
        nearest = await self._nearest(team_id, app)
        return {s.name: self._open(s) for s in nearest if may_go(s.policy, use)}

    async def _nearest(self, team_id: str, app: str) -> Sequence[Secret]:
        """An app's value stands for the team's also where it may not go itself."""
        scopes = dict.fromkeys((TEAM_SCOPE, scope_of(app)))
        found = await self._store.read(
            lambda tx: [secret for scope in scopes for secret in _all(tx, team_id, scope)]
        )
        return list({each.name: each for each in found if is_variable(each.name)}.values())

    async def rotate(self, principal: Principal) -> int:
        """Seal everything with a new key; how many values were sealed anew.

        A batch at a time, each whole or not at all. When it is interrupted, all keys that are
        needed are still there, and the next attempt goes on where this one stopped.
        """
        principal.require(Scope.SETTINGS_WRITE)
        key_id = self._vault.begin_rotation()
        count = 0
        while done := await self._store.write(lambda tx: self._reseal(tx, key_id)):
            count += done
        while await self._store.write(lambda tx: reseal_answers(tx, self._vault, key_id)):
            pass
        for reseal in self.sealed_elsewhere:
            await self._store.write(partial(_resealed, reseal, key_id))
        self._vault.end_rotation()
        entry = AuditEntry(
            principal.team_id,
            principal.actor,
            "secrets.rotate",
            key_id,
            self._clock.wall(),
            {"resealed": count},
        )
        await self._store.write(lambda tx: tx.audit.append([entry]))
        return count

    def _reseal(self, tx: Transaction, key_id: str) -> int:
        found = tx.secrets.sealed_otherwise(key_id, _AT_ONCE)
        for secret in found:
            place = associated(secret.team_id, secret.scope, secret.name, secret.version)
            sealed = self._vault.seal(self._vault.open(secret.sealed, place), place)
            tx.secrets.put(replace(secret, sealed=sealed.text, key_id=sealed.key_id))
        return len(found)

    async def _find(self, team_id: str, scope: str, name: str) -> Secret:
        found = await self._store.read(lambda tx: tx.secrets.get(team_id, scope, name))
        if found is None:
            raise _missing(name)
        return found

    def _open(self, secret: Secret) -> str:
        place = associated(secret.team_id, secret.scope, secret.name, secret.version)
        return self._vault.open(secret.sealed, place).decode()

    def _note(self, tx: Transaction, principal: Principal, secret: Secret, kind: EventKind) -> None:
        """Its name and what is known of it, never its value."""
        now, actor = self._clock.wall(), principal.actor
        data = {
            "version": secret.version,
            "sensitive": secret.sensitive,
            "policy": secret.policy.value,
            "app": app_of(secret.scope),
        }
        tx.events.append([Event(secret.team_id, kind, secret.name, now, data, actor)])
        tx.audit.append([AuditEntry(secret.team_id, actor, kind, secret.name, now, data)])


def _check_no_wider(before: Secret, after: Secret) -> None:
    """That its value cannot be read where it could not before."""
    if before.sensitive and not after.sensitive:
        raise Conflict(
            f"{before.name} is sensitive, and its value is never shown again",
            remediation="give a new value with sensitive=false",
        )
    if before.sensitive and widens(before.policy, after.policy):
        # In a sandbox whoever can run a command there reads it.
        raise Conflict(
            f"{before.name} is sensitive and {before.policy}: changed to {after.policy}, its value "
            "could be read where it is not now",
            remediation="give the value again together with the policy",
        )


def _resealed(reseal: Callable[[Transaction, str], None], key_id: str, tx: Transaction) -> None:
    reseal(tx, key_id)


def _all(tx: Transaction, team_id: str, scope: str) -> Iterator[Secret]:
    after = ""
    while page := tx.secrets.list(team_id, scope, Page(_PAGE, after)):
        yield from page
        after = page[-1].name


def _missing(name: str) -> NotFound:
    return NotFound(
        f"there is no secret {name[:80]}", remediation="`paddock secrets ls` lists those there are"
    )
