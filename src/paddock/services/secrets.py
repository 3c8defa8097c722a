"""Configuration of a team and its apps: sealed as it comes, told only to whom it may be told."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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


class Secrets:
    """Values of a team. One that is sensitive is never read again through here."""

    def __init__(self, store: Store, clock: Clock, vault: Vault) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault

    async def put(self, principal: Principal, name: str, wish: SecretWish, app: str = "") -> Secret:
        """Set it, or change what is known of it. A value that was sensitive is never revealed:
        to make it readable a new one has to be given."""
        principal.require(Scope.SECRETS_WRITE)
        scope = scope_of(app)
        check_secret_name(name)
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

        return await self._store.write(write)

    def _made(
        self, place: tuple[str, str, str], wish: SecretWish, before: Secret | None, *, now: float
    ) -> Secret:
        team_id, scope, name = place
        sensitive = before.sensitive if before else True
        sensitive = sensitive if wish.sensitive is None else wish.sensitive
        policy = wish.policy or (before.policy if before else AccessPolicy.CONTROL_PLANE_ONLY)
        if wish.value is None:
            if before is None:
                raise _missing(name)
            if before.sensitive and not sensitive:
                raise Conflict(
                    f"{name} is sensitive, and its value is never shown again",
                    remediation="give a new value with sensitive=false",
                )
            if before.sensitive and widens(before.policy, policy):
                # In a sandbox whoever can run a command there reads it.
                raise Conflict(
                    f"{name} is sensitive and {before.policy}: changed to {policy}, its value "
                    "could be read where it is not now",
                    remediation="give the value again together with the policy",
                )
            return replace(before, sensitive=sensitive, policy=policy, changed_at=now)
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

    async def value_for(self, team_id: str, name: str, use: Use, app: str = "") -> str:
        """For the parts of Paddock that use it; Forbidden where its policy keeps it from going."""
        secret = await self._find(team_id, scope_of(app), name)
        check_use(secret, use)
        return self._open(secret)

    async def environment(self, team_id: str, app: str, use: Use) -> Mapping[str, str]:
        """What goes into the environment of an app's programs: the team's values and over them the
        app's, of each what its policy lets go there."""
        scopes = dict.fromkeys((TEAM_SCOPE, scope_of(app)))
        found = await self._store.read(
            lambda tx: [secret for scope in scopes for secret in _all(tx, team_id, scope)]
        )
        # An app's value stands for the team's also where it may not go itself.
        nearest = {secret.name: secret for secret in found if is_variable(secret.name)}
        return {
            name: self._open(secret)
            for name, secret in nearest.items()
            if may_go(secret.policy, use)
        }

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


def _all(tx: Transaction, team_id: str, scope: str) -> Iterator[Secret]:
    after = ""
    while page := tx.secrets.list(team_id, scope, Page(_PAGE, after)):
        yield from page
        after = page[-1].name


def _missing(name: str) -> NotFound:
    return NotFound(
        f"there is no secret {name[:80]}", remediation="`GET /v1/secrets` lists those there are"
    )
