"""Traces as OpenTelemetry has them, sent to a collector by OTLP over HTTP.

The packages are an extra (`paddock-sandbox[otel]`) and are imported only when an endpoint is set.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from paddock.domain.errors import InvalidRequest, PaddockError
from paddock.domain.tracing import Span, Value

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

Begin = Callable[[str, Mapping[str, str]], Span]
"""The first span of a request here, by name and headers: `traceparent` makes it another's part."""
_LAST_WORDS_MS = 3000


@asynccontextmanager
async def tracing(endpoint: str, sample_ratio: float, version: str) -> AsyncIterator[Begin]:
    """While this is open, what is begun is sent there. A collector that fails costs the spans it
    does not take, and nothing else. InvalidRequest when the packages are missing."""
    provider = _provider(endpoint, sample_ratio, version)
    tracer = provider.get_tracer("paddock", version)
    try:
        yield lambda name, headers: _begun(tracer, name, headers)
    finally:
        await asyncio.to_thread(_close, provider)


def _provider(endpoint: str, sample_ratio: float, version: str) -> "TracerProvider":
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise InvalidRequest(
            f"telemetry.otlp_endpoint is set, but a package for it is missing: {error.name}",
            remediation="install it with `pip install 'paddock-sandbox[otel]'`, or unset the "
            "endpoint",
        ) from error
    if not endpoint.startswith(("http://", "https://")):
        raise InvalidRequest(
            f"telemetry.otlp_endpoint is {endpoint[:100]!r}, which is no http(s) address",
            remediation="give that of a collector, such as http://localhost:4318",
        )
    resource = Resource.create({"service.name": "paddock", "service.version": version})
    sampler = ParentBased(TraceIdRatioBased(sample_ratio))
    provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=5)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000))
    return provider


def _close(provider: "TracerProvider") -> None:
    """What is still to be sent has a moment; a collector that does not answer has no more."""
    provider.force_flush(_LAST_WORDS_MS)
    provider.shutdown()


def _begun(tracer: "Tracer", name: str, headers: Mapping[str, str]) -> Span:
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract(dict(headers))
    return _Traced(tracer, tracer.start_span(name, context, SpanKind.SERVER))


class _Traced:
    """The domain's `Span`."""

    __slots__ = ("_span", "_tracer")

    def __init__(self, tracer: "Tracer", span: "OtelSpan") -> None:
        self._tracer = tracer
        self._span = span

    @property
    def traceparent(self) -> str:
        found = self._span.get_span_context()
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"

    def child(self, name: str, attributes: Mapping[str, Value], *, is_call: bool = False) -> Span:
        from opentelemetry.trace import SpanKind, set_span_in_context

        kind = SpanKind.CLIENT if is_call else SpanKind.INTERNAL
        parent = set_span_in_context(self._span)
        return _Traced(self._tracer, self._tracer.start_span(name, parent, kind, dict(attributes)))

    def note(self, attributes: Mapping[str, Value]) -> None:
        self._span.set_attributes(dict(attributes))

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def end(self, error: BaseException | None = None) -> None:
        from opentelemetry.trace import Status, StatusCode

        if error is not None:
            kind = error.code if isinstance(error, PaddockError) else type(error).__name__
            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()
