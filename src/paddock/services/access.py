"""Teams and tokens: who is let in, as whom."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paddock.domain import team as rules
from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Forbidden, NotFound, Unauthenticated
from paddock.domain.ids import new_id
from paddock.domain.records import check_name
from paddock.domain.team import Person, Principal, Role, Scope, Team, Token
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Store, Transaction
from paddock.services.lineage import lineage_for
from paddock.services.once import Once, Repeatable
from paddock.services.stays import Stays, find_token

_log = logging.getLogger(__name__)
TEAM_PREFIX = "tem"
FIRST_TEAM = "default"
_TRUSTED_S = 5.0
"""How long another process's revocation may go unnoticed; this one's is noticed at once."""
_USE_NOTED_EVERY_S = 60.0
_MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class TokenWish:
    """What a new token shall be."""

    name: str
    role: Role = Role.MEMBER
    scopes: frozenset[Scope] | None = None
    lifetime_s: float | None = None
    person: str = ""
    """Whose it shall be, by id or address; empty is nobody's, or one's own where one may make
    no other."""


@dataclass(slots=True)
class _Known:
    token: Token
    team: Team
    person: Person | None
    looked_up_at: float


class Access:
    """Lets in who has a token, and makes and ends tokens."""

    def __init__(self, store: Store, clock: Clock, once: Once) -> None:
        self._store = store
        self._clock = clock
        self._once = once
        self._known: dict[str, _Known] = {}
        self.stays = Stays(store, clock)

    async def begin(self, keep: Callable[[str], None]) -> bool:
        """On the first start: the operating team and its admin's token, given to `keep`.

        It is kept before it is valid, so that a crash between the two loses nothing but a token
        that never worked. False when there was a team already.
        """
        if await self._store.read(lambda tx: tx.teams.list(Page(limit=1))):
            return False
        now = self._clock.wall()
        team = Team(new_id(TEAM_PREFIX), FIRST_TEAM, now, operator=True)
        token, presented = rules.issue(team, "first admin", Role.ADMIN, now)
        await asyncio.to_thread(keep, presented)

        def first(tx: Transaction) -> bool:
            if tx.teams.list(Page(limit=1)):
                return False
            tx.teams.add(team)
            tx.tokens.add(token)
            tx.audit.append([_entry(team.id, "paddock", "team.create", team.id, at=now)])
            return True

        return await self._store.write(first)

    async def authenticate(self, presented: str) -> Principal:
        """Whom a token stands for; Unauthenticated when for nobody."""
        token_id, secret = rules.split_secret(presented)
        now = self._clock.wall()
        known = self._known.get(token_id)
        if known is None or not 0 <= now - known.looked_up_at < _TRUSTED_S:
            known = await self._look_up(token_id, now)
        token, team = (known.token, known.team) if known else (None, None)
        person = known.person if known else None
        principal = rules.authenticate(token, team, secret, now, person=person)
        if known is not None and now - (known.token.used_at or 0) >= _USE_NOTED_EVERY_S:
            await self._note_use(known, now)
        return principal

    async def _look_up(self, token_id: str, now: float) -> _Known | None:
        found = await self._store.read(lambda tx: find_token(tx, token_id))
        if found is None:
            return None
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        known = self._known[token_id] = _Known(*found, looked_up_at=now)
        return known

    async def _note_use(self, known: _Known, now: float) -> None:
        known.token = replace(known.token, used_at=now)

        def note(tx: Transaction) -> None:
            token = tx.tokens.get(known.token.id)  # it may have been revoked meanwhile
            if token is not None:
                tx.tokens.replace(replace(token, used_at=now))

        await self._store.write(note)

    async def create_team(
        self, principal: Principal, name: str, key: str = ""
    ) -> tuple[Team, Token, str]:
        """A team, and the token of its first admin with its secret."""
        principal.require(Scope.TEAMS_MANAGE)
        now = self._clock.wall()
        team = Team(new_id(TEAM_PREFIX), check_name(name), now)
        token, presented = rules.issue(team, "first admin", Role.ADMIN, now)

        def add(tx: Transaction) -> tuple[str, tuple[Team, Token, str]]:
            tx.teams.add(team)
            tx.tokens.add(token)
            entry = _entry(team.id, principal.actor, "team.create", team.id, at=now, name=name)
            tx.audit.append([entry])
            return team.id, (team, token, presented)

        request = Repeatable(principal, key, "team.create", name)
        return await self._once.write(
            request,
            add,
            tuple[Team, Token, str],
            stands=lambda tx, made: _opens(tx, made[1], now),
        )

    async def team_of(self, principal: Principal) -> Team:
        return await self.team(principal, "")

    async def teams(self, principal: Principal, page: Page) -> Sequence[Team]:
        """All of them for the operating team's admins, otherwise one's own."""
        if Scope.TEAMS_MANAGE in principal.scopes:
            return await self._store.read(lambda tx: tx.teams.list(page))
        own = await self._store.read(lambda tx: tx.teams.get(principal.team_id))
        return [own] if own and page.after < own.id else []

    async def create_token(
        self, principal: Principal, wish: TokenWish, team_name: str = "", key: str = ""
    ) -> tuple[Token, str]:
        """A token and its secret, for one's own team unless one may manage others."""
        wish = _checked(principal, wish)
        now = self._clock.wall()
        team = await self.team(principal, team_name)
        if team.id == principal.team_id:
            rules.check_gives(principal, wish.scopes or rules.granted(wish.role, team.operator))

        def add(tx: Transaction) -> tuple[str, tuple[Token, str]]:
            person = find_person(tx, team.id, wish.person) if wish.person else None
            token, presented = rules.issue(
                team,
                wish.name,
                wish.role,
                now,
                scopes=wish.scopes,
                lifetime_s=wish.lifetime_s,
                person=person,
                made_with=lineage_for(tx, principal, person.id if person else ""),
            )
            tx.tokens.add(token)
            detail = {"name": token.name, "role": token.role, "person": token.person_id}
            entry = _entry(team.id, principal.actor, "token.create", token.id, at=now, **detail)
            tx.audit.append([entry])
            return token.id, (token, presented)

        request = Repeatable(principal, key, "token.create", (team.id, wish))
        return await self._once.write(
            request, add, tuple[Token, str], stands=lambda tx, made: _opens(tx, made[0], now)
        )

    async def tokens(self, principal: Principal, page: Page, person: str = "") -> Sequence[Token]:
        """The team's, or one person's; who manages none sees their own."""
        if Scope.TOKENS_MANAGE not in principal.scopes:
            person = _only_own(principal, person)

        def look(tx: Transaction) -> Sequence[Token]:
            whose = find_person(tx, principal.team_id, person).id if person else ""
            return tx.tokens.list(principal.team_id, page, person_id=whose)

        return await self._store.read(look)

    async def revoke(self, principal: Principal, token_id: str) -> Token:
        """It lets nobody in any more, and who is in goes. Revoking a revoked one is success."""
        own = "" if Scope.TOKENS_MANAGE in principal.scopes else _only_own(principal, "")
        now = self._clock.wall()

        def end(tx: Transaction) -> Token:
            token = tx.tokens.get(token_id, principal.team_id)
            if token is None or (own and token.person_id != own):
                raise NotFound(
                    f"there is no token {token_id}", remediation="`paddock token ls` shows yours"
                )
            if token.revoked_at is not None:
                return token
            ended = replace(token, revoked_at=now)
            tx.tokens.replace(ended)
            entry = _entry(token.team_id, principal.actor, "token.revoke", token.id, at=now)
            tx.audit.append([entry])
            return ended

        token = await self._store.write(end)
        self.forget([token_id])
        await self.stays.look()
        return token

    def forget(self, token_ids: Sequence[str]) -> None:
        """They were changed: the next use looks at them again."""
        for token_id in token_ids:
            self._known.pop(token_id, None)

    def forget_all(self) -> None:
        """Somebody's role was changed, and with it what all their tokens may."""
        self._known.clear()

    async def team(self, principal: Principal, name: str) -> Team:
        """Find a team by ID or name; by default, the caller's. NotFound if it is not visible."""

        def look(tx: Transaction) -> Team | None:
            own = tx.teams.get(principal.team_id)
            if not name or (own and name in (own.id, own.name)):
                return own
            if Scope.TEAMS_MANAGE not in principal.scopes:
                return None
            return tx.teams.get(name) or tx.teams.named(name)

        team = await self._store.read(look)
        if team is None:
            raise NotFound(
                f"there is no team {name or principal.team_id}",
                remediation="`paddock team ls` shows those you may see",
            )
        return team


def _checked(principal: Principal, wish: TokenWish) -> TokenWish:
    """Who may make no others may make their own."""
    if Scope.TOKENS_MANAGE in principal.scopes:
        return wish
    return replace(wish, person=_only_own(principal, wish.person))


def _only_own(principal: Principal, person: str) -> str:
    if not principal.person_id or Scope.TOKENS_OWN not in principal.scopes:
        principal.require(Scope.TOKENS_MANAGE)
    if person not in ("", "me", principal.person_id):
        raise Forbidden(
            "you may see and make your own tokens only",
            remediation=f"leave the person out, or use a token that has {Scope.TOKENS_MANAGE}",
        )
    return principal.person_id


def _opens(tx: Transaction, token: Token, now: float) -> bool:
    """Whether somebody still comes in by it."""
    found = find_token(tx, token.id)
    if found is None:
        return False
    try:
        rules.standing(*found, now)
    except Unauthenticated:
        return False
    return True


def find_person(tx: Transaction, team_id: str, name: str) -> Person:
    """By id, or by address while they are there; NotFound for anybody else's."""
    if "@" in name:
        found = tx.people.with_email(team_id, name.lower())
    else:
        found = tx.people.get(name, team_id)
    if found is None:
        raise NotFound(
            f"there is no person {name[:80]}", remediation="`paddock person ls` shows yours"
        )
    return found


def _entry(
    team_id: str, actor: str, action: str, subject: str, *, at: float, **detail: object
) -> AuditEntry:
    return AuditEntry(team_id, actor, action, subject, at, detail)
