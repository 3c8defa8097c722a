"""`/v1/teams` and `/v1/tokens`: who may come in."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from paddock.domain.team import Role, Scope, Team, Token
from paddock.interfaces.api.context import Given, Key, Who
from paddock.interfaces.api.paging import TeamPage, TokenPage
from paddock.interfaces.api.routes.people import PersonShape, show_person
from paddock.interfaces.api.schemas.common import ListOf, Name, Shape, Text, at, moment, paged
from paddock.services.access import TokenWish
from paddock.services.people import ME

router = APIRouter(prefix="/v1", tags=["access"])


class TeamShape(Shape):
    """A team."""

    id: str
    name: str
    created_at: datetime
    operator: bool = Field(description="it runs this installation")


class TokenShape(Shape):
    """A token, without its secret."""

    id: str
    name: str
    team_id: str
    role: Role
    scopes: list[Scope] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None
    person_id: str | None = Field(description="whose it is; it ends when they leave")


class NewToken(TokenShape):
    """A token with its secret, which is shown this once."""

    token: str


class NewTeam(TeamShape):
    """A team with the token of its first admin."""

    token: NewToken


class CreateTeam(Shape):
    """A team that is to be."""

    name: Name


class CreateToken(Shape):
    """A token that is to be."""

    name: Annotated[Text, Field(min_length=1, max_length=100)]
    role: Role = Role.MEMBER
    scopes: list[Scope] | None = None
    lifetime_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    team: Annotated[Text, Field(max_length=64, description="your own unless said")] = ""
    person: Annotated[
        Text, Field(max_length=254, description="whose it shall be: an id or address, or `me`")
    ] = ""


class Self(Shape):
    """Whom a token or session stands for."""

    team: TeamShape
    person: PersonShape | None
    actor: str = Field(description="who, and by what: `usr_…/tok_…`, or a token that is nobody's")
    role: Role
    scopes: list[Scope]


@router.get("/me")
async def me(given: Given, who: Who) -> Self:
    """Whom your token stands for."""
    team = await given.access.team_of(who)
    person = await given.people.get(who, who.person_id) if who.person_id else None
    return Self(
        team=_team(team),
        person=show_person(person) if person else None,
        actor=who.actor,
        role=who.role,
        scopes=sorted(who.scopes),
    )


@router.post("/teams", status_code=201)
async def create_team(given: Given, who: Who, key: Key, wanted: CreateTeam) -> NewTeam:
    """Make a team and a token for its first admin. For admins of the operating team."""
    team, token, secret = await given.access.create_team(who, wanted.name, key)
    return NewTeam(**dict(_team(team)), token=NewToken(**dict(_token(token)), token=secret))


@router.get("/teams")
async def list_teams(given: Given, who: Who, page: TeamPage) -> ListOf[TeamShape]:
    """The teams that you may see."""
    found = await given.access.teams(who, page)
    return paged(found, page.limit - 1, _team, lambda team: team.id)


@router.post("/tokens", status_code=201)
async def create_token(given: Given, who: Who, key: Key, wanted: CreateToken) -> NewToken:
    """Make a token; its secret is shown this once, and to you again by the same key."""
    scopes = None if wanted.scopes is None else frozenset(wanted.scopes)
    person = who.person_id if wanted.person == ME else wanted.person
    wish = TokenWish(wanted.name, wanted.role, scopes, wanted.lifetime_s, person)
    token, secret = await given.access.create_token(who, wish, wanted.team, key)
    return NewToken(**dict(_token(token)), token=secret)


@router.get("/tokens")
async def list_tokens(
    given: Given,
    who: Who,
    page: TokenPage,
    *,
    person: Annotated[str, Query(max_length=254, description="only this person's")] = "",
) -> ListOf[TokenShape]:
    """The team's tokens, or your own if you manage no others; revoked ones included."""
    person = who.person_id if person == ME else person
    found = await given.access.tokens(who, page, person)
    return paged(found, page.limit - 1, _token, lambda token: token.id)


@router.delete("/tokens/{token}")
async def revoke(given: Given, who: Who, token: str) -> TokenShape:
    """It lets nobody in any more, and ends the streams, terminals and previews open on it."""
    return _token(await given.access.revoke(who, token))


def _team(team: Team) -> TeamShape:
    return TeamShape(
        id=team.id, name=team.name, created_at=at(team.created_at), operator=team.operator
    )


def _token(token: Token) -> TokenShape:
    return TokenShape(
        id=token.id,
        name=token.name,
        team_id=token.team_id,
        role=token.role,
        scopes=None if token.scopes is None else sorted(token.scopes),
        created_at=at(token.created_at),
        expires_at=moment(token.expires_at),
        revoked_at=moment(token.revoked_at),
        used_at=moment(token.used_at),
        person_id=token.person_id or None,
    )
