"""`/v1/people`: who is in the team."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from paddock.domain.session import SignInLink
from paddock.domain.team import Person, Role
from paddock.interfaces.api.context import Given, Key, Services, Who
from paddock.interfaces.api.paging import PersonPage
from paddock.interfaces.api.schemas.common import ListOf, Shape, Text, at, moment, paged
from paddock.services.people import PersonWish

router = APIRouter(prefix="/v1/people", tags=["people"])


class PersonShape(Shape):
    """Somebody of the team."""

    id: str
    name: str = Field(description="empty when they were forgotten")
    email: str
    role: Role
    created_at: datetime
    removed_at: datetime | None


class LinkShape(Shape):
    """A link that lets somebody sign in once. It is shown this once."""

    id: str
    person_id: str
    link: str = Field(description="for `POST /v1/session`")
    url: str = Field(description="for a browser; the secret is behind the #, which is not sent")
    expires_at: datetime


class Invited(PersonShape):
    """Somebody new, with the link by which they come in for the first time."""

    invitation: LinkShape


class AddPerson(Shape):
    """Somebody who is to come in."""

    name: Annotated[Text, Field(min_length=1, max_length=100, examples=["Ada Lovelace"])]
    email: Annotated[Text, Field(max_length=254)] = ""
    role: Role = Role.MEMBER


class ChangePerson(Shape):
    """What shall be different; what is left out stays as it is."""

    name: Annotated[Text, Field(min_length=1, max_length=100)] | None = None
    email: Annotated[Text, Field(max_length=254)] | None = None
    role: Role | None = None


class CreateLink(Shape):
    """How long the link lasts."""

    lifetime_s: Annotated[float, Field(ge=1, le=7 * 86400, allow_inf_nan=False)] = 600.0


@router.post("", status_code=201)
async def add(request: Request, given: Given, who: Who, *, key: Key, wanted: AddPerson) -> Invited:
    """Let somebody into the team. They sign in by the link, once, within three days."""
    wish = PersonWish(wanted.name, wanted.email, wanted.role)
    person, link, secret = await given.people.add(who, wish, key)
    invitation = _link(request, given, link, secret)
    return Invited(**dict(show_person(person)), invitation=invitation)


@router.get("")
async def list_people(given: Given, who: Who, page: PersonPage) -> ListOf[PersonShape]:
    """The people of the team, those who have left included."""
    found = await given.people.list(who, page)
    return paged(found, page.limit - 1, show_person, lambda person: person.id)


@router.get("/{person}")
async def get(given: Given, who: Who, person: str) -> PersonShape:
    """One, by id or address; `me` is whose your token is."""
    return show_person(await given.people.get(who, person))


@router.patch("/{person}")
async def change(given: Given, who: Who, person: str, wanted: ChangePerson) -> PersonShape:
    """A new role holds for their tokens and sessions at once."""
    wish = PersonWish(wanted.name, wanted.email, wanted.role)
    return show_person(await given.people.change(who, person, wish))


@router.delete("/{person}")
async def remove(
    given: Given,
    who: Who,
    *,
    person: str,
    forget: Annotated[bool, Query(description="also their name and address")] = False,
) -> PersonShape:
    """Their tokens, links and sessions end at once. What they did stays in the audit log."""
    return show_person(await given.people.remove(who, person, forget=forget))


@router.post("/{person}/links", status_code=201)
async def create_link(
    request: Request, given: Given, who: Who, *, key: Key, person: str, wanted: CreateLink
) -> LinkShape:
    """A link that lets them sign in once: your own as `me`, or another's as an admin."""
    link, secret = await given.people.link(who, person, wanted.lifetime_s, key)
    return _link(request, given, link, secret)


def show_person(person: Person) -> PersonShape:
    return PersonShape(
        id=person.id,
        name=person.name,
        email=person.email,
        role=person.role,
        created_at=at(person.created_at),
        removed_at=moment(person.removed_at),
    )


def _link(request: Request, given: Services, link: SignInLink, secret: str) -> LinkShape:
    base = (given.public_url or str(request.base_url)).rstrip("/")
    return LinkShape(
        id=link.id,
        person_id=link.person_id,
        link=secret,
        url=f"{base}/signin#{secret}",
        expires_at=at(link.expires_at),
    )
