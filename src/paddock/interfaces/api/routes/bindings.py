"""Where secrets may be sent on behalf of sandboxes, and how."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from paddock.domain.broker.binding import Way
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.schemas.bindings import (
    Bindings,
    BindingShape,
    Credentials,
    PutBinding,
    show_binding,
    show_standing,
)

router = APIRouter(prefix="/v1", tags=["secrets"])
App = Annotated[str, Query(max_length=63, description="of this app; the team's unless said")]


@router.get("/bindings")
async def list_bindings(given: Given, who: Who, *, app: App = "", secret: str = "") -> Bindings:
    """Of all secrets of the team or of one of its apps, or of one of them."""
    found = await given.bindings.list(who, app, secret)
    return Bindings(items=[show_binding(each) for each in found])


@router.put("/secrets/{secret}/bindings/{way}")
async def bind(
    given: Given, who: Who, *, secret: str, way: Way, wanted: PutBinding, app: App = ""
) -> BindingShape:
    """From now on requests of the team's sandboxes (or the app's) to these hosts have it. Inside
    there is a placeholder only, unless `expose` says otherwise."""
    return show_binding(await given.bindings.put(who, wanted.read(who.team_id, app, secret, way)))


@router.delete("/secrets/{secret}/bindings/{way}", status_code=204)
async def unbind(given: Given, who: Who, *, secret: str, way: Way, app: App = "") -> Response:
    """From now on it is sent nowhere in this way."""
    await given.bindings.remove(who, secret, way, app)
    return Response(status_code=204)


@router.get("/sandboxes/{sandbox}/credentials")
async def get_credentials(given: Given, who: Who, sandbox: str) -> Credentials:
    """What a sandbox may use without having it, and what keeps any of it from working."""
    found = await given.broker.standing(who, sandbox)
    return Credentials(items=[show_standing(each) for each in found])
