"""Each request as the beginning of a trace, or as a part of the caller's."""

from collections.abc import Callable, Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock.domain import tracing
from paddock.domain.tracing import Span

Begin = Callable[[str, Mapping[str, str]], Span]


class Traced:
    """Only there when something traces."""

    def __init__(self, app: ASGIApp, begin: Begin) -> None:
        self._app = app
        self._begin = begin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        method = scope.get("method", "WS")

        async def answer(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                span.note({"http.response.status_code": message["status"]})
            await send(message)

        with tracing.within(self._begin(method, Headers(scope=scope))) as span:
            span.note({"http.request.method": method})
            try:
                await self._app(scope, receive, answer)
            finally:
                route = getattr(scope.get("route"), "path", "") or "other"
                span.rename(f"{method} {route}")
                request = str(scope.get("paddock.request_id", ""))
                span.note({"http.route": route, "paddock.request.id": request})
