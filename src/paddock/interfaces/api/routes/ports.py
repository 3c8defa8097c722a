"""`/v1/sandboxes/{sandbox}/ports`: what is served inside, and who may see it."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import Field

from paddock.domain.team import Scope
from paddock.interfaces.api.context import Given, Key, Services, Who
from paddock.interfaces.api.schemas.common import ListOf, Shape, at
from paddock.interfaces.api.schemas.sandboxes import SandboxShape, show
from paddock.interfaces.preview.door import PARAMETER
from paddock.interfaces.preview.hosts import preview_host

router = APIRouter(prefix="/v1/sandboxes/{sandbox}", tags=["previews"])
PortNumber = Annotated[int, Path(ge=1, le=65535)]


class PortShape(Shape):
    """A port that a program inside listens on."""

    port: int
    address: str
    command: str
    url: str
    public: bool


class PreviewShape(Shape):
    """Where a port is seen from outside."""

    port: int
    url: str
    public: bool


class Share(Shape):
    """How long a link lasts."""

    lasts_s: Annotated[float, Field(ge=1, le=30 * 86400, allow_inf_nan=False)] = 3600.0


class LinkShape(Shape):
    """A link that opens a private port to whoever has it."""

    url: str
    port: int
    expires_at: datetime


@router.get("/ports")
async def list_ports(request: Request, given: Given, who: Who, sandbox: str) -> ListOf[PortShape]:
    """Where programs inside listen."""
    async with given.inside.enter(who, sandbox, "", Scope.SANDBOXES_READ) as entered:
        found = await given.previews.ports(entered.sandbox)
    items = [
        PortShape(
            port=each.port,
            address=each.address,
            command=each.command,
            url=url_of(request, given, entered.sandbox.id, each.port),
            public=each.port in entered.sandbox.public_ports,
        )
        for each in sorted(found, key=lambda port: port.port)
    ]
    return ListOf[PortShape](items=items, next_cursor=None)


@router.get("/ports/{port}")
async def get_port(
    request: Request, given: Given, who: Who, *, sandbox: str, port: PortNumber
) -> PreviewShape:
    """Where a port is seen from outside, whether anything listens there yet or not."""
    found = await given.sandboxes.get(who, sandbox)
    url = url_of(request, given, found.id, port)
    return PreviewShape(port=port, url=url, public=port in found.public_ports)


@router.post("/ports/{port}/links", status_code=201)
async def share(
    request: Request,
    given: Given,
    who: Who,
    *,
    key: Key,
    sandbox: str,
    port: PortNumber,
    wanted: Share,
) -> LinkShape:
    """Make a link to a private port; it ends by itself."""
    link, word = await given.previews.share(who, sandbox, port, lasts_s=wanted.lasts_s, key=key)
    url = url_of(request, given, link.sandbox_id, port)
    return LinkShape(url=f"{url}/?{PARAMETER}={word}", port=port, expires_at=at(link.expires_at))


@router.delete("/links")
async def revoke_links(given: Given, who: Who, sandbox: str) -> SandboxShape:
    """End every link to the sandbox's ports that was ever made."""
    return show(await given.previews.revoke_links(who, sandbox))


def url_of(request: Request, given: Services, sandbox_id: str, port: int) -> str:
    """By the way the caller came here: scheme and port as the outside sees them."""
    host = preview_host(port, sandbox_id, given.preview_domain)
    outside = request.url.port
    return f"{request.url.scheme}://{host}" + (f":{outside}" if outside else "")
