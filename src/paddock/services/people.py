"""The people of a team: who they are, what they may, and the end of all their ways in."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Conflict, InvalidRequest, NotFound
from paddock.domain.ids import new_id
from paddock.domain.session import SignInLink, new_link
from paddock.domain.team import (
    PERSON_PREFIX,
    Person,
    Principal,
    Role,
    Scope,
    check_gives,
    granted,
)
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Store, Transaction
from paddock.services.access import Access, find_person
from paddock.services.lineage import lineage_for
from paddock.services.once import Once, Repeatable
from paddock.services.sessions import Sessions

ME = "me"
INVITATION_S = 3 * 86400.0
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,189}")


@dataclass(frozen=True, slots=True)
class PersonWish:
    """Who somebody shall be; None leaves it as it is."""

    name: str | None = None
    email: str | None = None
    role: Role | None = None


class People:
    """There are no passwords: a link that opens once lets somebody in."""

    def __init__(
        self, store: Store, clock: Clock, access: Access, *, once: Once, sessions: Sessions
    ) -> None:
        self._store = store
        self._once = once
        self._clock = clock
        self._access = access
        self.sessions = sessions

    async def add(
        self, principal: Principal, wish: PersonWish, key: str = ""
    ) -> tuple[Person, SignInLink, str]:
        """Somebody new, and the link by which they come in for the first time."""
        principal.require(Scope.PEOPLE_MANAGE)
        now = self._clock.wall()
        person = Person(
            id=new_id(PERSON_PREFIX),
            team_id=principal.team_id,
            name=_name(wish.name or ""),
            role=wish.role or Role.MEMBER,
            created_at=now,
            email=_email(wish.email or ""),
        )
        _check_gives(principal, person)
        link, presented = new_link(person, now, INVITATION_S)

        def write(tx: Transaction) -> tuple[str, tuple[Person, SignInLink, str]]:
            tx.people.add(person)
            tx.links.add(link)
            self._note(tx, principal, person, "person.add", role=person.role)
            return person.id, (person, link, presented)

        request = Repeatable(principal, key, "person.add", wish)
        return await self._once.write(
            request, write, tuple[Person, SignInLink, str], stands=_still_there
        )

    async def get(self, principal: Principal, name: str) -> Person:
        """Oneself, and anybody of the team for who manages them."""
        name = _meant(principal, name)
        return await self._store.read(lambda tx: find_person(tx, principal.team_id, name))

    async def list(self, principal: Principal, page: Page) -> Sequence[Person]:
        """Those who have left included."""
        principal.require(Scope.PEOPLE_MANAGE)
        return await self._store.read(lambda tx: tx.people.list(principal.team_id, page))

    async def change(self, principal: Principal, name: str, wish: PersonWish) -> Person:
        principal.require(Scope.PEOPLE_MANAGE)

        def step(person: Person) -> Person:
            changed = replace(
                person,
                name=person.name if wish.name is None else _name(wish.name),
                email=person.email if wish.email is None else _email(wish.email),
                role=wish.role or person.role,
            )
            _check_gives(principal, changed)
            return changed

        person = await self._store.write(
            lambda tx: self._changed(tx, principal, _meant(principal, name), step)
        )
        self._access.forget_all()
        self.sessions.forget_all()
        return person

    def _changed(
        self, tx: Transaction, principal: Principal, name: str, step: Callable[[Person], Person]
    ) -> Person:
        person = find_person(tx, principal.team_id, name)
        if person.removed_at is not None:
            raise Conflict(f"{person.id} has left", remediation="add them anew")
        changed = step(person)
        if changed != person:
            tx.people.replace(changed)
            self._note(tx, principal, changed, "person.change", role=changed.role)
        return changed

    async def remove(self, principal: Principal, name: str, *, forget: bool = False) -> Person:
        """All their tokens, links and sessions end at once. Forgotten, only their id is left.

        Removing somebody who has left is success.
        """
        principal.require(Scope.PEOPLE_MANAGE)
        now = self._clock.wall()

        def write(tx: Transaction) -> tuple[Person, Sequence[str], Sequence[str]]:
            person = find_person(tx, principal.team_id, _meant(principal, name))
            left = replace(person, removed_at=person.removed_at or now)
            if forget:
                left = replace(left, name="", email="")
                tx.keys.release(person.team_id, person.id)
            tokens = tx.tokens.revoke_of(person.id, now)
            sessions = tx.sessions.end_of(person.id, now)
            tx.links.remove_of(person.id)
            if left != person:
                tx.people.replace(left)
                ended = {"tokens": len(tokens), "sessions": len(sessions), "forgotten": forget}
                self._note(tx, principal, left, "person.remove", **ended)
            return left, tokens, sessions

        person, tokens, sessions = await self._store.write(write)
        self._access.forget(tokens)
        self.sessions.forget(sessions)
        return person

    async def link(
        self, principal: Principal, name: str, lifetime_s: float | None = None, key: str = ""
    ) -> tuple[SignInLink, str]:
        """A link that lets them sign in once: one's own, or anybody's for who manages them."""
        name, now = _meant(principal, name), self._clock.wall()

        def allowed(tx: Transaction) -> Person:
            person = find_person(tx, principal.team_id, name)
            if person.removed_at is not None:
                raise Conflict(f"{person.id} has left", remediation="add them anew")
            _check_gives(principal, person)
            return person

        def write(tx: Transaction) -> tuple[str, tuple[SignInLink, str]]:
            person = allowed(tx)
            made_with = lineage_for(tx, principal, person.id)
            link, presented = new_link(person, now, lifetime_s, made_with=made_with)
            tx.links.add(link)
            self._note(tx, principal, person, "person.link", link=link.id)
            return link.id, (link, presented)

        def stands(tx: Transaction, made: tuple[SignInLink, str]) -> bool:
            allowed(tx)  # they may have become more than who asks
            link = tx.links.get(made[0].id)
            return link is not None and link.opens_at(now)

        request = Repeatable(principal, key, "person.link", (name, lifetime_s))
        return await self._once.write(request, write, tuple[SignInLink, str], stands=stands)

    # Never a name: the log outlives the person, and shows the name only as long as it is kept.
    def _note(
        self, tx: Transaction, principal: Principal, person: Person, action: str, **detail: object
    ) -> None:
        entry = AuditEntry(
            person.team_id, principal.actor, action, person.id, self._clock.wall(), detail
        )
        tx.audit.append([entry])


def _meant(principal: Principal, name: str) -> str:
    """Whom a name means, for this caller."""
    own = principal.person_id
    if name in (ME, own):
        if own:
            return own
        raise NotFound(
            "your token belongs to no person, so there is no `me`",
            remediation="open /signin in a browser and paste the token there; or create a token of "
            "a person: `paddock token create NAME --person EMAIL`",
        )
    principal.require(Scope.PEOPLE_MANAGE)
    return name


def _still_there(tx: Transaction, made: tuple[Person, SignInLink, str]) -> bool:
    """That their first link was used does not undo that they were added."""
    person = tx.people.get(made[0].id)
    return person is not None and person.removed_at is None


def _check_gives(principal: Principal, person: Person) -> None:
    """Who lets somebody in as an admin could come in as one."""
    check_gives(principal, granted(person.role, principal.operator))


def _name(text: str) -> str:
    if text.strip() and len(text) <= 100:
        return text.strip()
    raise InvalidRequest(
        f"a person's name is {text[:120]!r}; it must have 1 to 100 characters",
        remediation="write it as they do",
    )


def _email(text: str) -> str:
    if not text or _EMAIL.fullmatch(text):
        return text.lower()
    raise InvalidRequest(
        f"{text[:120]!r} is no address", remediation="write it as name@example.org, or leave it out"
    )
