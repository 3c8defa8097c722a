"""Sign-in without passwords: links that open once, and the sessions that come of them."""

import hashlib
import hmac
from dataclasses import dataclass, field

from paddock.domain.errors import Forbidden, InvalidRequest, Unauthenticated
from paddock.domain.ids import new_id
from paddock.domain.team import (
    Person,
    Principal,
    Team,
    Token,
    digest,
    granted,
    matches,
    new_secret,
    standing,
)

SESSION_PREFIX = "ses"
LINK_PREFIX = "lnk"
LINK_S = 600.0
LONGEST_LINK_S = 7 * 86400.0
SESSION_S = 7 * 86400.0
"""However much it is used."""
IDLE_S = 12 * 3600.0
"""Without any use."""
_AGAIN = "ask for a new link: `paddock login`, or an admin's `paddock person link NAME`"
_SIGN_IN = "sign in again"


@dataclass(frozen=True, slots=True)
class SignInLink:
    """Lets one person in, once."""

    id: str
    team_id: str
    person_id: str
    digest: str = field(repr=False)
    created_at: float
    expires_at: float
    used_at: float | None = None
    made_with: tuple[str, ...] = ()

    def opens_at(self, now: float) -> bool:
        return self.used_at is None and now < self.expires_at


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that somebody has signed in with."""

    id: str
    team_id: str
    holder: str
    """The person, or the token where no person stands behind it."""
    digest: str = field(repr=False)
    created_at: float
    expires_at: float
    used_at: float
    token_id: str = ""
    """It was opened with this token, and ends with it."""
    ended_at: float | None = None
    agent: str = ""
    """What the browser says it is."""
    made_with: tuple[str, ...] = ()
    """The token that opened it or has made its link, the one that has made that one, and so on."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who stands behind a session, as they are now."""

    team: Team
    person: Person | None = None
    token: Token | None = None


def new_link(
    person: Person,
    now: float,
    lifetime_s: float | None = None,
    *,
    made_with: tuple[str, ...] = (),
) -> tuple[SignInLink, str]:
    """A link and its secret, which is shown once."""
    lifetime = LINK_S if lifetime_s is None else lifetime_s
    if not 1 <= lifetime <= LONGEST_LINK_S:
        raise InvalidRequest(
            f"a sign-in link cannot last {lifetime:g} s",
            remediation=f"ask for between 1 s and {LONGEST_LINK_S:g} s",
        )
    identifier, secret = new_id(LINK_PREFIX), new_secret()
    link = SignInLink(
        id=identifier,
        team_id=person.team_id,
        person_id=person.id,
        digest=digest(secret),
        created_at=now,
        expires_at=now + lifetime,
        made_with=made_with,
    )
    return link, f"{identifier}.{secret}"


def check_link(link: SignInLink | None, person: Person | None, secret: str, now: float) -> None:
    """Unauthenticated unless it opens. Who is unknown and who is wrong are told the same."""
    right = matches(link.digest if link else None, secret)
    if link is None or not right or person is None or person.removed_at is not None:
        raise Unauthenticated("this sign-in link is not valid", remediation=_AGAIN)
    if link.used_at is not None:
        raise Unauthenticated("this sign-in link was used already", remediation=_AGAIN)
    if now >= link.expires_at:
        raise Unauthenticated("this sign-in link has expired", remediation=_AGAIN)


def begin(
    team: Team,
    holder: str,
    now: float,
    *,
    token_id: str = "",
    agent: str = "",
    made_with: tuple[str, ...] = (),
) -> tuple[Session, str]:
    """A session and what its cookie holds."""
    identifier, secret = new_id(SESSION_PREFIX), new_secret()
    session = Session(
        id=identifier,
        team_id=team.id,
        holder=holder,
        digest=digest(secret),
        created_at=now,
        expires_at=now + SESSION_S,
        used_at=now,
        token_id=token_id,
        agent=agent,
        made_with=made_with,
    )
    return session, f"{identifier}.{secret}"


def ends_at(session: Session) -> float:
    """When it ends unless it is used again."""
    if session.ended_at is not None:
        return session.ended_at
    return min(session.expires_at, session.used_at + IDLE_S)


def admit(session: Session | None, holder: Holder | None, secret: str, now: float) -> Principal:
    """Whom a session stands for now: no more than its holder may at this moment."""
    right = matches(session.digest if session else None, secret)
    return lasting(session if right else None, holder, now)


def lasting(session: Session | None, holder: Holder | None, now: float) -> Principal:
    """The same for a session that has proved itself before."""
    if session is None or holder is None:
        raise Unauthenticated("this session is unknown", remediation=_SIGN_IN)
    if now >= ends_at(session):
        raise Unauthenticated("this session has ended", remediation=_SIGN_IN)
    actor = f"{session.holder}/{session.id}"
    if session.token_id:
        if holder.token is None:
            raise Unauthenticated("the token of this session is gone", remediation=_SIGN_IN)
        behind = standing(holder.token, holder.team, holder.person, now)
        return Principal(behind.team_id, actor, behind.role, behind.scopes, behind.operator)
    person = holder.person
    if person is None or person.removed_at is not None:
        raise Unauthenticated("this session is of somebody who has left", remediation=_SIGN_IN)
    scopes = granted(person.role, holder.team.operator)
    return Principal(holder.team.id, actor, person.role, scopes, holder.team.operator)


def csrf_of(presented: str) -> str:
    """What a page of ours can know of the cookie, and no other page: it goes with every write."""
    return hashlib.sha256(f"paddock csrf {presented}".encode()).hexdigest()


def check_csrf(presented: str, given: str) -> None:
    if not hmac.compare_digest(csrf_of(presented).encode(), given.encode()):
        raise Forbidden(
            "this request came with a session's cookie alone, as another site's page could send it",
            remediation="send the `csrf` of `GET /v1/session` as X-Paddock-CSRF, or use a token",
        )
