"""The HTTP API as an ASGI application."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from paddock import __version__
from paddock.interfaces.api import browsers, errors
from paddock.interfaces.api.context import Services
from paddock.interfaces.api.middleware import Bind, Envelope, Observe
from paddock.interfaces.api.routes import (
    access,
    commands,
    events,
    files,
    groups,
    health,
    intake,
    people,
    ports,
    providers,
    purges,
    sandboxes,
    secrets,
    sessions,
    settings,
    snapshots,
    templates,
    terminal,
)
from paddock.interfaces.api.schemas.common import ErrorBody
from paddock.interfaces.api.tracing import Traced

_ROUTERS = (
    sandboxes,
    commands,
    terminal,
    files,
    ports,
    groups,
    snapshots,
    templates,
    events,
    intake,
    access,
    people,
    sessions,
    purges,
    secrets,
    settings,
    providers,
    health,
)
# Also what the listener in front says of a request that takes too long or is too large.
_ALWAYS = (400, 401, 403, 404, 408, 409, 413, 414, 429, 431, 500, 501, 502, 503, 504)

_FOR_ANYONE = (
    *(("get", path) for path in ("/healthz", "/readyz", "/v1/version")),
    ("post", "/v1/session"),
)


def create_app(services: Services, observe: Observe, bind: Bind) -> FastAPI:
    """The application for these services."""
    app = _routed()
    app.state.services = services
    errors.install(app)
    app.add_middleware(Envelope, observe=observe, bind=bind)
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
    )
    for module in _ROUTERS:
        app.include_router(module.router)
    return app


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: every route says which errors it has, in their one shape."""
    if app.openapi_schema:
        return app.openapi_schema
    found = get_openapi(
        title=app.title, version=app.version, summary=app.summary, routes=app.routes
    )
    schemas = found["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    body = ErrorBody.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= body.pop("$defs", {}) | {"ErrorBody": body}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    found["components"]["responses"] = {
        "Error": {"description": "what went wrong, and what to do about it", "content": content}
    }
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
            _document_errors(operation)
            if (method, path) in _FOR_ANYONE:
                operation["security"] = []
    app.openapi_schema = found
    return found


def _document_errors(operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    answers.pop("422", None)
    for status in _ALWAYS:
        answers.setdefault(str(status), {"$ref": "#/components/responses/Error"})
