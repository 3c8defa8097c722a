"""`/v1/teams` and `/v1/tokens`: who may come in."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from paddock.domain.team import Role, Scope, Team, Token
from paddock.interfaces.api.context import Given, Paging, Who
from paddock.interfaces.api.schemas.common import ListOf, Name, Shape, Text, at, moment, paged
from paddock.services.access import TokenWish

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


class Self(Shape):
    """Whom a token stands for."""

    team: TeamShape
    actor: str
    role: Role
    scopes: list[Scope]


@router.get("/me")
async def me(given: Given, who: Who) -> Self:
    """Whom your token stands for."""
    team = await given.access.team_of(who)
    return Self(team=_team(team), actor=who.actor, role=who.role, scopes=sorted(who.scopes))


@router.post("/teams", status_code=201)
async def create_team(given: Given, who: Who, wanted: CreateTeam) -> NewTeam:
    """Make a team and a token for its first admin. For admins of the operating team."""
    team, token, secret = await given.access.create_team(who, wanted.name)
    return NewTeam(**dict(_team(team)), token=NewToken(**dict(_token(token)), token=secret))


@router.get("/teams")
async def list_teams(given: Given, who: Who, page: Paging) -> ListOf[TeamShape]:
    """The teams that you may see."""
    found = await given.access.teams(who, page)
    return paged(found, page.limit - 1, _team, lambda team: team.id)


@router.post("/tokens", status_code=201)
async def create_token(given: Given, who: Who, wanted: CreateToken) -> NewToken:
    """Make a token; its secret is shown this once."""
    scopes = None if wanted.scopes is None else frozenset(wanted.scopes)
    wish = TokenWish(wanted.name, wanted.role, scopes, wanted.lifetime_s)
    token, secret = await given.access.create_token(who, wish, wanted.team)
    return NewToken(**dict(_token(token)), token=secret)


@router.get("/tokens")
async def list_tokens(given: Given, who: Who, page: Paging) -> ListOf[TokenShape]:
    """The team's tokens, revoked ones included."""
    found = await given.access.tokens(who, page)
    return paged(found, page.limit - 1, _token, lambda token: token.id)


@router.delete("/tokens/{token}")
async def revoke(given: Given, who: Who, token: str) -> TokenShape:
    """It lets nobody in any more."""
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
    )
