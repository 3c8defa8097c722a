"""What the store keeps of teams, their people, and all their ways in."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from paddock.domain.session import Session, SignInLink
from paddock.domain.team import Person, Team, Token
from paddock.ports.paging import Page


class Teams(Protocol):
    """Teams, newest first."""

    def add(self, team: Team) -> None:
        """Conflict when the name is taken."""
        ...

    def get(self, team_id: str) -> Team | None: ...

    def named(self, name: str) -> Team | None: ...

    def operating(self) -> Team | None:
        """The newest of those that run the installation."""
        ...

    def list(self, page: Page) -> Sequence[Team]: ...


class Tokens(Protocol):
    """The ways in, newest first."""

    def add(self, token: Token) -> None: ...

    def get(self, token_id: str, team_id: str = "") -> Token | None:
        """If a team is given, return None for an ID of another team."""
        ...

    def list(self, team_id: str, page: Page, *, person_id: str = "") -> Sequence[Token]: ...

    def replace(self, token: Token) -> None:
        """Whatever the copy says, a revocation stays and `used_at` never goes backwards.

        NotFound when there is no such token.
        """
        ...

    def revoke_of(self, person_id: str, now: float) -> Sequence[str]:
        """All that a person has; their ids."""
        ...


class People(Protocol):
    """The people of teams, newest first, also those who have left."""

    def add(self, person: Person) -> None:
        """Conflict when somebody in the team has the address."""
        ...

    def get(self, person_id: str, team_id: str = "") -> Person | None:
        """If a team is given, return None for an ID of another team."""
        ...

    def with_email(self, team_id: str, email: str) -> Person | None:
        """Of those who have not left."""
        ...

    def named(self, person_ids: Sequence[str]) -> Mapping[str, str]:
        """Their names, as far as they are known."""
        ...

    def list(self, team_id: str, page: Page) -> Sequence[Person]: ...

    def replace(self, person: Person) -> None:
        """NotFound when there is no such person, Conflict when the address is taken."""
        ...


class Links(Protocol):
    """Links that let somebody sign in."""

    def add(self, link: SignInLink) -> None: ...

    def get(self, link_id: str) -> SignInLink | None: ...

    def use(self, link_id: str, now: float) -> None: ...

    def remove_of(self, person_id: str) -> None: ...

    def prune(self, before: float, limit: int) -> int:
        """Forget those that expired before; how many there were."""
        ...


class Sessions(Protocol):
    """Who is signed in, newest first."""

    def add(self, session: Session) -> None: ...

    def get(self, session_id: str, team_id: str = "") -> Session | None:
        """If a team is given, return None for an ID of another team."""
        ...

    def list(self, team_id: str, page: Page, *, holder: str = "") -> Sequence[Session]: ...

    def touch(self, session_id: str, now: float) -> None:
        """It was used. Never backwards."""
        ...

    def end(self, session_id: str, now: float) -> None:
        """One that has ended before stays as it is."""
        ...

    def end_of(self, holder: str, now: float) -> Sequence[str]:
        """All that somebody has open; their ids."""
        ...

    def prune(self, before: float, limit: int) -> int:
        """Forget those that expired before; how many there were."""
        ...
