"""Who is still here: a stream, a terminal or a preview ends when what it was opened with does."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from paddock.domain import session as session_rules
from paddock.domain import team as token_rules
from paddock.domain.errors import Forbidden, PaddockError, Unauthenticated
from paddock.domain.ids import is_id
from paddock.domain.session import SESSION_PREFIX, Holder, Session
from paddock.domain.team import PERSON_PREFIX, TOKEN_PREFIX, Person, Principal, Team, Token
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.alongside import alongside, every

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.5
"""How long an expiry, or what another process ended, may go unnoticed."""

End = Callable[[PaddockError], None]
Check = Callable[[Transaction, float], None]
"""Unauthenticated or Forbidden when what somebody is here by does not hold any more, at a time."""


class Stay:
    """Somebody who follows something for long. What they await inside `attending` is cut off, with
    the reason as its error, when they may not be here any more."""

    def __init__(self) -> None:
        self._error: PaddockError | None = None
        self._task: asyncio.Task[object] | None = None

    def end(self, error: PaddockError) -> None:
        self._error = error
        if self._task is not None:
            self._task.cancel()

    @contextmanager
    def attending(self) -> Iterator[None]:
        """As `asyncio.timeout` does: the cancellation becomes the error, unless it is another's."""
        if self._error is not None:
            raise self._error
        task = self._task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        try:
            yield
        except asyncio.CancelledError:
            if self._error is not None and task.uncancel() <= before:
                raise self._error from None
            raise
        finally:
            self._task = None


@dataclass(frozen=True, slots=True, eq=False)
class _Visit:
    ground: Hashable
    """What they are here by: those who are here by the same are looked at once."""
    check: Check
    end: End


class Stays:
    """All who are here on a token, with a session or by a link."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._visits: set[_Visit] = set()
        self._standing: dict[str, Principal] = {}
        """Until the next look, by token or session."""

    async def standing(self, means: str) -> Principal:
        """Whom a token or a session stands for, for who has proved before that it is theirs;
        Unauthenticated once it has ended."""
        if (known := self._standing.get(means)) is not None:
            return known
        now = self._clock.wall()
        found = await self._store.read(lambda tx: _found(tx, means) if _can_end(means) else None)
        principal = self._standing[means] = _lasting(found, now)
        return principal

    @contextmanager
    def staying(self, principal: Principal, end: End) -> Iterator[None]:
        """While this is open, `end` is called once if they may not be here any more."""
        credential = principal.means
        if not _can_end(credential):
            yield
            return

        def check(tx: Transaction, now: float) -> None:
            _check(principal, _found(tx, credential), now)

        with self.staying_while(principal, check, end):
            yield

    @contextmanager
    def staying_while(self, ground: Hashable, check: Check, end: End) -> Iterator[None]:
        """The same for who is here by something else; `check` is of the ground alone."""
        visit = _Visit(ground, check, end)
        self._visits.add(visit)
        try:
            yield
        finally:
            self._visits.discard(visit)

    @contextmanager
    def stay(self, principal: Principal) -> Iterator[Stay]:
        stay = Stay()
        with self.staying(principal, stay.end):
            yield stay

    async def look(self) -> None:
        """One look at everything that somebody is here with: after it, who may not be is gone."""
        self._standing.clear()
        visits = list(self._visits)
        if not visits:
            return
        now = self._clock.wall()
        checks = {visit.ground: visit.check for visit in visits}
        ended = await self._store.read(lambda tx: _ended(tx, checks, now))
        for visit in visits:
            if (error := ended.get(visit.ground)) is not None:
                self._show_out(visit, error)

    def _show_out(self, visit: _Visit, error: PaddockError) -> None:
        if visit not in self._visits:
            return
        self._visits.discard(visit)
        try:
            visit.end(error)
        except Exception:  # noqa: BLE001 - one who does not go keeps no other
            _log.exception("a stay did not end", extra={"ground": type(visit.ground).__name__})

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While this is open, what ends by itself or elsewhere is noticed."""
        looking = every(
            _LOOK_EVERY_S, self.look, clock=self._clock, failed="who is here could not be checked"
        )
        async with alongside(looking, "tokens that end"):
            yield


_OfToken = tuple[Token, Team, Person | None]
_OfSession = tuple[Session, Holder]


def _ended(
    tx: Transaction, checks: Mapping[Hashable, Check], now: float
) -> Mapping[Hashable, PaddockError]:
    ended: dict[Hashable, PaddockError] = {}
    for ground, check in checks.items():
        try:
            check(tx, now)
        except (Unauthenticated, Forbidden) as error:
            ended[ground] = error
    return ended


def _can_end(credential: str) -> bool:
    return is_id(credential, TOKEN_PREFIX) or is_id(credential, SESSION_PREFIX)


def _found(tx: Transaction, credential: str) -> _OfToken | _OfSession | None:
    if is_id(credential, SESSION_PREFIX):
        return find_session(tx, credential)
    return find_token(tx, credential)


def find_token(tx: Transaction, token_id: str) -> _OfToken | None:
    """A token with everything that decides what it is good for."""
    token = tx.tokens.get(token_id)
    team = tx.teams.get(token.team_id) if token else None
    if token is None or team is None:
        return None
    return token, team, tx.people.get(token.person_id) if token.person_id else None


def find_session(tx: Transaction, session_id: str) -> _OfSession | None:
    """A session with everything that decides what it is good for."""
    session = tx.sessions.get(session_id)
    team = tx.teams.get(session.team_id) if session else None
    if session is None or team is None:
        return None
    person = tx.people.get(session.holder) if is_id(session.holder, PERSON_PREFIX) else None
    token = tx.tokens.get(session.token_id) if session.token_id else None
    return session, Holder(team, person, token)


def _lasting(found: _OfToken | _OfSession | None, now: float) -> Principal:
    if found is None:
        raise Unauthenticated(
            "what this was opened with is gone", remediation="ask an admin of your team for access"
        )
    if len(found) == 2:
        return session_rules.lasting(*found, now)
    return token_rules.standing(*found, now)


def _check(principal: Principal, found: _OfToken | _OfSession | None, now: float) -> None:
    if lost := principal.scopes - _lasting(found, now).scopes:
        raise Forbidden(
            f"{', '.join(sorted(lost))} was taken from you meanwhile",
            remediation="open it again with what you still may",
        )
