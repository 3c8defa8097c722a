"""`/v1/secrets`: configuration of a team and its apps; what is sensitive is never read again."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from paddock.domain.secret import LARGEST, AccessPolicy, Secret, app_of
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.paging import ByName
from paddock.interfaces.api.schemas.common import ListOf, Shape, Text, at, paged
from paddock.services.secrets import SecretWish

router = APIRouter(prefix="/v1/secrets", tags=["secrets"])
App = Annotated[str, Query(max_length=63, description="of this app; the team's unless said")]


class PutSecret(Shape):
    """What shall be set; what is left out stays as it is."""

    value: Annotated[
        Text | None,
        Field(max_length=LARGEST, repr=False, description=f"at most {LARGEST >> 10} KiB"),
    ] = None
    sensitive: Annotated[
        bool | None,
        Field(description="it can never be read again; true for a new one unless said"),
    ] = None
    policy: Annotated[
        AccessPolicy | None,
        Field(description="where it may go; `control_plane_only` for a new one unless said"),
    ] = None
    labels: Annotated[
        dict[Text, Text] | None,
        Field(description="what is noted about it, in place of all that was: at most 32"),
    ] = None


class SecretShape(Shape):
    """What is known of a value."""

    name: str
    app: str | None
    version: int = Field(description="grows with every new value")
    sensitive: bool
    policy: AccessPolicy
    key_id: str = Field(description="the key that seals it")
    labels: dict[str, str]
    created_at: datetime
    changed_at: datetime


class ReadableSecret(SecretShape):
    """The same with the value, unless that is sensitive."""

    value: str | None


class Rotated(Shape):
    """What a rotation has done."""

    resealed: int


@router.post("/rotate")
async def rotate(given: Given, who: Who) -> Rotated:
    """Seal the values of all teams with a new key. For admins of the operating team. When it is
    interrupted, ask again: it goes on where it stopped."""
    return Rotated(resealed=await given.secrets.rotate(who))


@router.get("")
async def list_secrets(
    given: Given, who: Who, page: ByName, *, app: App = ""
) -> ListOf[SecretShape]:
    """What the team or one of its apps has, by name; no values."""
    found = await given.secrets.list(who, page, app)
    return paged(found, page.limit - 1, _show, lambda secret: secret.name)


@router.put("/{secret}")
async def put(
    given: Given, who: Who, *, secret: str, wanted: PutSecret, app: App = ""
) -> SecretShape:
    """Set a value, or change what is known of it. A sensitive one goes to more places only
    together with its value."""
    wish = SecretWish(wanted.value, wanted.sensitive, wanted.policy, wanted.labels)
    return _show(await given.secrets.put(who, secret, wish, app))


@router.get("/{secret}")
async def get(given: Given, who: Who, *, secret: str, app: App = "") -> ReadableSecret:
    """What is known of a value, and the value itself unless it is sensitive."""
    found, value = await given.secrets.get(who, secret, app)
    return ReadableSecret(**dict(_show(found)), value=value)


@router.delete("/{secret}", status_code=204)
async def delete(given: Given, who: Who, *, secret: str, app: App = "") -> Response:
    """Let it go."""
    await given.secrets.delete(who, secret, app)
    return Response(status_code=204)


def _show(secret: Secret) -> SecretShape:
    return SecretShape(
        name=secret.name,
        app=app_of(secret.scope) or None,
        version=secret.version,
        sensitive=secret.sensitive,
        policy=secret.policy,
        key_id=secret.key_id,
        labels=dict(secret.labels),
        created_at=at(secret.created_at),
        changed_at=at(secret.changed_at),
    )
