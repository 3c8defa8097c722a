"""Who may do what: teams, roles, scopes, tokens, and the principal that a request acts as."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from enum import StrEnum

from paddock.domain.errors import Forbidden, InvalidRequest, Unauthenticated
from paddock.domain.ids import is_id, new_id

TOKEN_PREFIX = "tok"  # noqa: S105 - what a token begins with
PERSON_PREFIX = "usr"
_SECRET_BYTES = 32


class Role(StrEnum):
    """What a member of a team is."""

    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


class Scope(StrEnum):
    """One kind of thing that a token may be used for."""

    SANDBOXES_READ = "sandboxes:read"
    SANDBOXES_WRITE = "sandboxes:write"
    """Also what is inside: commands, files, terminals, private previews."""
    TASKS_READ = "tasks:read"
    TASKS_WRITE = "tasks:write"
    """Also what is said to agents. A task acts in sandboxes as who made it may."""
    TEMPLATES_READ = "templates:read"
    TEMPLATES_WRITE = "templates:write"
    SNAPSHOTS_READ = "snapshots:read"
    SNAPSHOTS_WRITE = "snapshots:write"
    SECRETS_READ = "secrets:read"
    """Names and policies; no scope reads a sensitive value."""
    SECRETS_WRITE = "secrets:write"
    POLICIES_WRITE = "policies:write"
    """Which commands may be run. To read them it takes what reads sandboxes or templates."""
    APPROVALS_READ = "approvals:read"
    APPROVALS_ANSWER = "approvals:answer"
    """Nothing that works in a sandbox should have it."""
    EVENTS_READ = "events:read"
    EVENTS_WRITE = "events:write"
    """To tell of what happens in a sandbox."""
    AUDIT_READ = "audit:read"
    TOKENS_MANAGE = "tokens:manage"
    TOKENS_OWN = "tokens:own"
    """A person's own tokens, of no more than they may do themselves."""
    PEOPLE_MANAGE = "people:manage"
    OWNERS_PURGE = "owners:purge"
    """To remove all that belongs to somebody, and forget them."""
    SETTINGS_READ = "settings:read"
    SETTINGS_WRITE = "settings:write"
    TEAMS_MANAGE = "teams:manage"


_READ = frozenset(
    {
        Scope.SANDBOXES_READ,
        Scope.TASKS_READ,
        Scope.TEMPLATES_READ,
        Scope.SNAPSHOTS_READ,
        Scope.SECRETS_READ,
        Scope.APPROVALS_READ,
        Scope.EVENTS_READ,
        Scope.SETTINGS_READ,
        Scope.TOKENS_OWN,
    }
)
_WORK = _READ | {
    Scope.SANDBOXES_WRITE,
    Scope.TASKS_WRITE,
    Scope.TEMPLATES_WRITE,
    Scope.SNAPSHOTS_WRITE,
    Scope.SECRETS_WRITE,
    Scope.APPROVALS_ANSWER,
    Scope.EVENTS_WRITE,
}
OPERATOR_SCOPES = frozenset({Scope.SETTINGS_WRITE, Scope.TEAMS_MANAGE})
"""They touch the whole installation, so only admins of the operating team have them."""

GRANTS: dict[Role, frozenset[Scope]] = {
    Role.VIEWER: _READ,
    Role.MEMBER: _WORK,
    Role.ADMIN: frozenset(Scope),
}


@dataclass(frozen=True, slots=True)
class Team:
    """Everything that is made belongs to one."""

    id: str
    name: str
    created_at: float
    operator: bool = False
    """The team that runs this installation: the first one made."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in a team. What they did outlives them, under their id."""

    id: str
    team_id: str
    name: str
    role: Role
    created_at: float
    email: str = ""
    removed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A way in. The secret itself is known only to who was shown it once."""

    id: str
    team_id: str
    name: str
    role: Role
    digest: str = field(repr=False)
    created_at: float
    scopes: frozenset[Scope] | None = None
    """Narrower than the role; None means all that the role has."""
    expires_at: float | None = None
    revoked_at: float | None = None
    used_at: float | None = None
    person_id: str = ""
    """Whose it is; empty for one that no person answers for, such as a build server's."""
    made_with: tuple[str, ...] = ()
    """The token or session that has made it, the one that has made that one, and so on."""


@dataclass(frozen=True, slots=True)
class Principal:
    """On whose behalf something is done."""

    team_id: str
    actor: str
    """Who acts, and by what: `usr_…/tok_…`, `usr_…/ses_…`, `tok_…`, `paddock/reaper`."""
    role: Role
    scopes: frozenset[Scope]
    operator: bool = False

    @property
    def holder(self) -> str:
        """The person, or the token or part of Paddock where no person stands behind it."""
        return self.actor.partition("/")[0]

    @property
    def means(self) -> str:
        """What they act by: a token, a session, or a part of Paddock."""
        return self.actor.rpartition("/")[2]

    @property
    def person_id(self) -> str:
        return self.holder if is_id(self.holder, PERSON_PREFIX) else ""

    def require(self, scope: Scope) -> None:
        if scope in self.scopes:
            return
        raise Forbidden(
            f"this token has the role {self.role} and may not use {scope}",
            remediation=f"use a token that has {scope}, or ask an admin; "
            "`paddock token create` makes one of what its maker may",
        )


def issue(
    team: Team,
    name: str,
    role: Role,
    now: float,
    *,
    scopes: frozenset[Scope] | None = None,
    lifetime_s: float | None = None,
    person: Person | None = None,
    made_with: tuple[str, ...] = (),
) -> tuple[Token, str]:
    """A new token and its secret, which is shown once and kept nowhere."""
    _check_issue(team, name, role, scopes=scopes, lifetime_s=lifetime_s)
    if person is not None and not GRANTS[role] <= GRANTS[person.role]:
        raise InvalidRequest(
            f"{person.name} is a {person.role} and cannot have {role}'s tokens",
            remediation="give a lower role to the token, or a higher one to the person",
        )
    identifier = new_id(TOKEN_PREFIX)
    secret = new_secret()
    token = Token(
        id=identifier,
        team_id=team.id,
        name=name,
        role=role,
        digest=digest(secret),
        created_at=now,
        scopes=scopes,
        expires_at=None if lifetime_s is None else now + lifetime_s,
        person_id=person.id if person else "",
        made_with=made_with,
    )
    return token, f"{identifier}.{secret}"


def _check_issue(
    team: Team,
    name: str,
    role: Role,
    *,
    scopes: frozenset[Scope] | None,
    lifetime_s: float | None,
) -> None:
    if not name.strip() or len(name) > 100:
        raise InvalidRequest(
            f"a token's name is {name[:120]!r}; it must have 1 to 100 characters",
            remediation="name it after who or what will use it",
        )
    if lifetime_s is not None and not 0 < lifetime_s <= 100 * 365 * 86400:
        raise InvalidRequest(
            f"a token's lifetime is {lifetime_s:g} s; it must be more than 0 and at most 100 years",
            remediation="leave it out for a token that does not expire",
        )
    if scopes is not None and (beyond := scopes - granted(role, team.operator)):
        raise InvalidRequest(
            f"a {role} of team {team.name} cannot have {', '.join(sorted(beyond))}",
            remediation="leave these scopes out, or give a higher role",
        )


def split_secret(presented: str, prefix: str = TOKEN_PREFIX) -> tuple[str, str]:
    """The id and the secret part of what a client presents."""
    identifier, _, secret = presented.partition(".")
    if secret and is_id(identifier, prefix):
        return identifier, secret
    if prefix != TOKEN_PREFIX:
        raise Unauthenticated(
            f"what was presented does not look like {prefix}_….…",
            remediation="copy it whole, or sign in again",
        )
    raise Unauthenticated(
        "what was presented is not a token of Paddock",
        remediation=f"a token looks like {TOKEN_PREFIX}_….…; `paddock token create` makes one",
    )


def authenticate(
    token: Token | None, team: Team | None, secret: str, now: float, *, person: Person | None = None
) -> Principal:
    """Whom this secret stands for. Who is unknown and who is wrong are told the same."""
    right = matches(token.digest if token else None, secret)
    if token is None or team is None or not right:
        raise Unauthenticated(
            "this token is unknown",
            remediation="check that it was copied whole, and that it belongs to this server",
        )
    return standing(token, team, person, now)


def standing(token: Token, team: Team, person: Person | None, now: float) -> Principal:
    """Whom a token stands for now; Unauthenticated once it has ended."""
    ended = ""
    if token.revoked_at is not None:
        ended = "was revoked"
    elif token.expires_at is not None and now >= token.expires_at:
        ended = "has expired"
    elif token.person_id and (person is None or person.removed_at is not None):
        ended = "belongs to somebody who has left"
    if ended:
        raise Unauthenticated(
            f"token {token.id} {ended}", remediation="ask an admin of your team for a new one"
        )
    role = token.role if person is None else lower(token.role, person.role)
    scopes = granted(role, team.operator)
    return Principal(
        team_id=team.id,
        actor=f"{token.person_id}/{token.id}" if token.person_id else token.id,
        role=role,
        scopes=scopes if token.scopes is None else scopes & token.scopes,
        operator=team.operator,
    )


def lower(one: Role, other: Role) -> Role:
    return one if GRANTS[one] <= GRANTS[other] else other


def granted(role: Role, operator: bool) -> frozenset[Scope]:
    return GRANTS[role] if operator else GRANTS[role] - OPERATOR_SCOPES


def check_gives(principal: Principal, scopes: frozenset[Scope]) -> None:
    """Nobody gives to another what they do not have themselves."""
    if beyond := scopes - principal.scopes:
        raise InvalidRequest(
            f"your token lacks {', '.join(sorted(beyond))} and cannot give it to another",
            remediation="ask for narrower scopes, or use a token that has them",
        )


def new_secret() -> str:
    return secrets.token_urlsafe(_SECRET_BYTES)


def matches(kept: str | None, secret: str) -> bool:
    """Compared also when nothing is kept, so that time does not tell which ids exist."""
    return hmac.compare_digest(digest("") if kept is None else kept, digest(secret))


def digest(secret: str) -> str:
    """256 random bits need no slow hash: there is nothing to guess from."""
    return hashlib.sha256(secret.encode()).hexdigest()
