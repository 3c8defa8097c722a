"""E2B's control API as an ASGI application, beside our own."""

import re

from fastapi import FastAPI
from fastapi.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.interfaces.api.context import Services, authenticator
from paddock.interfaces.api.middleware import Bind, Envelope, Observe
from paddock.interfaces.e2b import (
    checked,
    copies,
    errors,
    inside,
    listing,
    sandboxes,
    secrets,
    templates,
    volumes,
)

ROUTERS = (sandboxes, listing, copies, inside, checked, templates, volumes, secrets)
_THEIRS = frozenset(
    {"sandboxes", "v2", "v3", "templates", "snapshots", "volumes", "volumecontent", "secrets"}
    | {"health", "process.Process"}
)
"""What the paths of E2B's API begin with; none of ours does."""
_UNBOUNDED = re.compile(r"/templates/[^/]+/files/[0-9a-f]{64}/content$|/volumecontent/[^/]+/file$")


def create_app(services: Services, observe: Observe, bind: Bind) -> FastAPI:
    app = FastAPI(
        title="E2B's API on Paddock",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # as in the API's own application
    )
    app.state.services = services
    for module in ROUTERS:
        app.router.routes.extend(module.router.routes)  # as in the API's own application
    app.add_api_route("/health", _health, methods=["GET"])
    errors.install(app)
    app.add_middleware(
        Envelope,
        observe=observe,
        bind=bind,
        authenticate=authenticator(services),
        unbounded=_UNBOUNDED,
    )
    return app


async def _health() -> Response:
    return Response(status_code=204)


class Beside:
    """Two applications at one address, told apart by what a path begins with."""

    def __init__(self, ours: ASGIApp, theirs: ASGIApp) -> None:
        self._ours = ours
        self._theirs = theirs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = scope.get("path", "").split("/", 2)[1:2]
        chosen = self._theirs if first and first[0] in _THEIRS else self._ours
        await chosen(scope, receive, send)
