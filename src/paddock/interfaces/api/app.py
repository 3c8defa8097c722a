"""The HTTP API as an ASGI application."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from paddock import __version__
from paddock.interfaces.api import browsers, errors
from paddock.interfaces.api.answers import describe_errors
from paddock.interfaces.api.context import Services, authenticator
from paddock.interfaces.api.middleware import Bind, Envelope, Observe
from paddock.interfaces.api.routes import (
    access,
    agents,
    approvals,
    audit,
    bindings,
    commands,
    egress,
    events,
    files,
    groups,
    health,
    history,
    intake,
    models,
    pages,
    people,
    policies,
    pools,
    ports,
    providers,
    purges,
    quarantine,
    quotas,
    sandboxes,
    secrets,
    sessions,
    settings,
    snapshots,
    ssh,
    status,
    task_care,
    task_streams,
    tasks,
    templates,
    terminal,
    volumes,
)
from paddock.interfaces.api.tracing import Traced

_ROUTERS = (
    tasks,
    task_care,
    task_streams,
    quarantine,
    status,
    sandboxes,
    commands,
    terminal,
    files,
    policies,
    egress,
    approvals,
    pools,
    ports,
    groups,
    ssh,
    snapshots,
    templates,
    volumes,
    events,
    audit,
    intake,
    history,
    access,
    people,
    sessions,
    purges,
    quotas,
    secrets,
    bindings,
    models,
    agents,
    settings,
    providers,
    health,
    pages,
)
_FOR_ANYONE = (
    *(("get", path) for path in ("/healthz", "/readyz", "/v1/version")),
    ("post", "/v1/session"),
)


def create_app(services: Services, observe: Observe, bind: Bind) -> FastAPI:
    """The application for these services."""
    app = _routed()
    app.state.services = services
    errors.install(app)
    check = authenticator(services)
    app.add_middleware(Envelope, observe=observe, bind=bind, authenticate=check)
    if services.trace is not None:
        app.add_middleware(Traced, begin=services.trace)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    return app


def describe() -> dict[str, Any]:
    """The OpenAPI document without anything behind it; it is checked in as it is here."""
    return document(_routed())


def _routed() -> FastAPI:
    app = FastAPI(
        title="Paddock",
        version=__version__,
        summary="A self-hosted control plane for AI coding agents.",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # such an answer has no body, and loses that of a POST
    )
    for module in _ROUTERS:
        # Not `include_router`: it builds every route again for each application, which adds 0.3 s
        # to the first request.
        app.router.routes.extend(module.router.routes)
    return app


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document."""
    if app.openapi_schema:
        return app.openapi_schema
    found = get_openapi(
        title=app.title, version=app.version, summary=app.summary, routes=app.routes
    )
    describe_errors(found)
    found["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "`paddock token create`"},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": browsers.COOKIE,
            "description": "`POST /v1/session`; writes also need the header X-Paddock-CSRF",
        },
    }
    found["security"] = [{"token": []}, {"session": []}]
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            if (method, path) in _FOR_ANYONE:
                operation["security"] = []
    app.openapi_schema = found
    return found
