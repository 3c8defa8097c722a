"""Who is signed in with a browser: begun with a link or a token, seen, and ended."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paddock.domain import session as rules
from paddock.domain.audit import AuditEntry
from paddock.domain.errors import NotFound, Unauthenticated
from paddock.domain.session import Holder, Session
from paddock.domain.team import Principal, Scope, split_secret
from paddock.ports.clock import Clock
from paddock.ports.store import Page, Store, Transaction
from paddock.services.access import Access
from paddock.services.lineage import lineage_of
from paddock.services.stays import find_session

_TRUSTED_S = 5.0
"""How long another process's ending may go unnoticed; this one's is noticed at once."""
_USE_NOTED_EVERY_S = 60.0
_MOST_REMEMBERED = 10_000
_LONGEST_AGENT = 200


@dataclass(slots=True)
class _Known:
    session: Session
    holder: Holder
    looked_up_at: float


class Sessions:
    """Sessions of browsers. The cookie is held by the browser alone; here is only its digest."""

    def __init__(self, store: Store, clock: Clock, access: Access) -> None:
        self._store = store
        self._clock = clock
        self._access = access
        self._known: dict[str, _Known] = {}

    async def begin_with_token(self, presented: str, agent: str = "") -> tuple[Session, str]:
        """The session has the token's rights, and ends with it."""
        principal = await self._access.authenticate(presented)
        token_id, _ = split_secret(presented)
        now = self._clock.wall()

        def write(tx: Transaction) -> tuple[Session, str]:
            team = tx.teams.get(principal.team_id)
            assert team is not None, "a team outlives its tokens"
            session, cookie = rules.begin(
                team,
                principal.holder,
                now,
                token_id=token_id,
                agent=_short(agent),
                made_with=lineage_of(tx, token_id),
            )
            tx.sessions.add(session)
            tx.audit.append([_entry(session, "session.begin", now)])
            return session, cookie

        return await self._store.write(write)

    async def begin_with_link(self, presented: str, agent: str = "") -> tuple[Session, str]:
        """The link opens nothing afterwards, whoever has it."""
        link_id, secret = split_secret(presented, rules.LINK_PREFIX)
        now = self._clock.wall()

        def write(tx: Transaction) -> tuple[Session, str] | Unauthenticated:
            link = tx.links.get(link_id)
            person = tx.people.get(link.person_id) if link else None
            try:
                rules.check_link(link, person, secret, now)
            except Unauthenticated as error:
                if link is not None and link.used_at is not None:
                    # Somebody else may have been quicker: that must not go unseen.
                    tx.audit.append([_refused(link.team_id, link.person_id, link.id, now)])
                return error
            team = tx.teams.get(person.team_id) if person else None
            assert link is not None and person is not None and team is not None
            tx.links.use(link.id, now)
            session, cookie = rules.begin(
                team, person.id, now, agent=_short(agent), made_with=link.made_with
            )
            tx.sessions.add(session)
            tx.audit.append([_entry(session, "session.begin", now, link=link.id)])
            return session, cookie

        made = await self._store.write(write)
        if isinstance(made, Unauthenticated):
            raise made
        return made

    async def authenticate(self, presented: str) -> Principal:
        """Whom a cookie stands for; Unauthenticated when for nobody."""
        session_id, secret = split_secret(presented, rules.SESSION_PREFIX)
        now = self._clock.wall()
        known = self._known.get(session_id)
        if known is None or not 0 <= now - known.looked_up_at < _TRUSTED_S:
            known = await self._look_up(session_id, now)
        if known is None:
            return rules.admit(None, None, secret, now)
        principal = rules.admit(known.session, known.holder, secret, now)
        if now - known.session.used_at >= _USE_NOTED_EVERY_S:
            known.session = replace(known.session, used_at=now)
            await self._store.write(lambda tx: tx.sessions.touch(session_id, now))
        return principal

    async def _look_up(self, session_id: str, now: float) -> _Known | None:
        found = await self._store.read(lambda tx: find_session(tx, session_id))
        if found is None:
            return None
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        known = self._known[session_id] = _Known(*found, looked_up_at=now)
        return known

    async def get(self, principal: Principal, session_id: str) -> Session:
        """One's own, or anybody's of the team for who manages people."""
        found = await self._store.read(lambda tx: tx.sessions.get(session_id))
        if found is None or not _may_see(principal, found):
            raise _missing(session_id)
        return found

    async def list(self, principal: Principal, page: Page) -> Sequence[Session]:
        """Those that have ended included, until they are forgotten."""
        holder = "" if Scope.PEOPLE_MANAGE in principal.scopes else principal.holder
        return await self._store.read(
            lambda tx: tx.sessions.list(principal.team_id, page, holder=holder)
        )

    async def end(self, principal: Principal, session_id: str) -> Session:
        """It lets nobody in any more. Ending one that has ended is success."""
        now = self._clock.wall()

        def write(tx: Transaction) -> Session:
            found = tx.sessions.get(session_id, principal.team_id)
            if found is None or not _may_see(principal, found):
                raise _missing(session_id)
            if found.ended_at is not None:
                return found
            tx.sessions.end(session_id, now)
            entry = AuditEntry(found.team_id, principal.actor, "session.end", session_id, now)
            tx.audit.append([entry])
            return replace(found, ended_at=now)

        ended = await self._store.write(write)
        self.forget([session_id])
        await self._access.stays.look()
        return ended

    def forget(self, session_ids: Sequence[str]) -> None:
        """They were changed: the next use looks at them again."""
        for session_id in session_ids:
            self._known.pop(session_id, None)

    def forget_all(self) -> None:
        self._known.clear()


def _may_see(principal: Principal, session: Session) -> bool:
    return Scope.PEOPLE_MANAGE in principal.scopes or session.holder == principal.holder


def _short(agent: str) -> str:
    """What a browser says of itself is shown to people and believed by nobody."""
    return "".join(c for c in agent if c.isprintable())[:_LONGEST_AGENT]


def _entry(session: Session, action: str, now: float, **detail: object) -> AuditEntry:
    actor = f"{session.holder}/{session.id}"
    return AuditEntry(session.team_id, actor, action, session.id, now, detail)


def _refused(team_id: str, person_id: str, link_id: str, now: float) -> AuditEntry:
    detail = {"link": link_id, "why": "used already"}
    return AuditEntry(team_id, "anyone", "session.refuse", person_id, now, detail)


def _missing(session_id: str) -> NotFound:
    return NotFound(
        f"there is no session {session_id[:80]}", remediation="`paddock session ls` shows yours"
    )
