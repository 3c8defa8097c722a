"""What is different when traces are wanted: every verb of a service is a part of its request."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

from paddock import __version__
from paddock.adapters.providers.layers import Layered, Trace
from paddock.adapters.tracing import Begin, tracing
from paddock.domain import tracing as traces
from paddock.domain.records import SandboxRecord
from paddock.domain.team import Principal
from paddock.interfaces.api.context import Services
from paddock.services.providers import Providers
from paddock.settings import TelemetryConfig

_VERBS_OF = (
    "access",
    "archives",
    "commands",
    "environment",
    "files",
    "previews",
    "sandboxes",
    "secrets",
    "snapshots",
    "templates",
    "volumes",
)


@asynccontextmanager
async def traced(config: TelemetryConfig) -> AsyncIterator[Begin | None]:
    """What begins a trace; None when none is wanted, and then nothing of it is even imported."""
    if not config.otlp_endpoint:
        yield None
        return
    async with tracing(config.otlp_endpoint, config.sample_ratio, __version__) as begin:
        yield begin


def calls_traced(providers: Providers, begin: Begin | None) -> Providers:
    return providers.wrapped(lambda each: Layered(each, Trace())) if begin else providers


def with_traces(services: Services, begin: Begin | None) -> Services:
    if begin is None:
        return services
    told: dict[str, Any] = {name: _Told(name, getattr(services, name)) for name in _VERBS_OF}
    return replace(services, trace=begin, **told)


class _Told:
    """A service whose every verb is told to the trace of the moment."""

    def __init__(self, name: str, service: object) -> None:
        self._name = name
        self._service = service

    def __getattr__(self, name: str) -> Any:
        """Asked once for each attribute."""
        found = getattr(self._service, name)
        if not inspect.iscoroutinefunction(found):
            return found
        told = _told(f"{self._name} {name}", found)
        setattr(self, name, told)
        return told


def _told(name: str, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(verb)
    async def telling(*given: Any, **more: Any) -> Any:
        with traces.span(name):
            if given and isinstance(given[0], Principal):
                traces.note(traces.TEAM, given[0].team_id)
                traces.note(traces.ACTOR, given[0].actor)
            result = await verb(*given, **more)
            if isinstance(result, SandboxRecord):
                traces.note(traces.SANDBOX, result.id)
            return result

    return telling
