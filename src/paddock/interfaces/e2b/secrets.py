"""`/secrets`: a team's sensitive values, which nobody reads again. Ours have names and no ids."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from paddock.domain.errors import Conflict, NotFound
from paddock.domain.secret import LARGEST, Secret
from paddock.domain.team import Principal
from paddock.interfaces.api.context import Given, Services, Who
from paddock.interfaces.api.schemas.common import Text
from paddock.interfaces.e2b.bodies import Body
from paddock.interfaces.e2b.listing import NEXT
from paddock.interfaces.e2b.secret_names import find_secret, id_of
from paddock.interfaces.e2b.views import moment
from paddock.ports.store import Page
from paddock.services.secrets import SecretWish

router = APIRouter()
_MOST = 100


class SecretValue(Body):
    """`POST /secrets/{secret}`: a new version of it."""

    value: Annotated[Text, Field(max_length=LARGEST, repr=False)]
    metadata: dict[Text, Text] | None = None
    """In place of what there is, if anything is said."""


class NewSecret(SecretValue):
    """`POST /secrets`."""

    name: Annotated[Text, Field(max_length=256)]


@router.get("/secrets")
async def list_secrets(
    given: Given,
    who: Who,
    *,
    limit: Annotated[int, Query(ge=1, le=_MOST)] = _MOST,
    next_token: Annotated[str, Query(alias="nextToken", max_length=256)] = "",
) -> Response:
    """What is sensitive: the rest can be read here, and could not be there."""
    found: list[Secret] = []
    after = next_token
    while len(found) <= limit and (page := await given.secrets.list(who, Page(_MOST, after))):
        found += [each for each in page if each.sensitive]
        after = page[-1].name
    headers = {NEXT: found[limit - 1].name} if len(found) > limit else {}
    return JSONResponse([_show(each) for each in found[:limit]], headers=headers)


@router.post("/secrets")
async def create(given: Given, who: Who, asked: NewSecret) -> Response:
    name = asked.name.lower()
    try:
        await given.secrets.get(who, name)
    except NotFound:
        return JSONResponse(_show(await _put(given, who, name, asked)), 201)
    raise Conflict(f"there is already a secret {name[:80]}", remediation="update it instead")


@router.get("/secrets/{secret}")
async def get(given: Given, who: Who, secret: str) -> Response:
    return JSONResponse(_show(await find_secret(given, who, secret)))


@router.post("/secrets/{secret}")
async def update(given: Given, who: Who, secret: str, asked: SecretValue) -> Response:
    found = await find_secret(given, who, secret)
    return JSONResponse(_show(await _put(given, who, found.name, asked)))


@router.delete("/secrets/{secret}")
async def delete(given: Given, who: Who, secret: str) -> Response:
    found = await find_secret(given, who, secret)
    await given.secrets.delete(who, found.name)
    return Response(status_code=204)


async def _put(given: Services, who: Principal, name: str, asked: SecretValue) -> Secret:
    wish = SecretWish(asked.value, sensitive=True, labels=asked.metadata)
    return await given.secrets.put(who, name, wish)


def _show(secret: Secret) -> dict[str, Any]:
    return {
        "secretID": id_of(secret),
        "name": secret.name,
        "currentVersion": secret.version,
        "metadata": dict(secret.labels),
        "createdAt": moment(secret.created_at),
        "updatedAt": moment(secret.changed_at),
    }
