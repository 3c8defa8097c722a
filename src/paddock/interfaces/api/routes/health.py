"""`/healthz`, `/readyz`, `/metrics` and `/v1/version`."""

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from paddock import __version__
from paddock.domain.errors import Forbidden, PaddockError
from paddock.domain.team import Scope
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.schemas.common import Shape

router = APIRouter(tags=["health"])


class Version(Shape):
    """What answers here."""

    version: str


class Health(Shape):
    """Whether all that is needed answers."""

    status: str
    problems: dict[str, str]


@router.get("/healthz")
async def alive() -> Health:
    """The process lives."""
    return Health(status="ok", problems={})


@router.get("/readyz", responses={503: {"model": Health}})
async def ready(given: Given) -> JSONResponse:
    """The store answers, and the provider that is used where none is named, or its fallback."""
    problems = {}
    try:
        await given.store.ping()
    except PaddockError as error:
        problems["store"] = error.message
    providers = await given.health.all()
    usable = {each.name for each in providers if each.usable}
    for provider in providers:
        if provider.default and not usable & {provider.name, given.providers.fallback}:
            why = provider.last_fault.message if provider.last_fault else "not usable"
            problems[f"provider {provider.name}"] = why
    body = Health(status="unready" if problems else "ok", problems=problems)
    return JSONResponse(body.model_dump(), 503 if problems else 200)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
async def metrics(given: Given, who: Who) -> Response:
    """Prometheus series of the whole installation, for its operators. Needs `settings:read`."""
    who.require(Scope.SETTINGS_READ)
    if not who.operator:
        raise Forbidden(
            "the series tell of every team's sandboxes",
            remediation="use a token of the team that runs this installation",
        )
    return Response(await given.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/version")
async def version() -> Version:
    """What answers here."""
    return Version(version=__version__)
