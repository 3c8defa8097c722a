"""What every request passes through: its id, its size, its place in the metrics."""

import re
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock.domain.errors import PaddockError, Unauthenticated
from paddock.domain.ids import new_id

MAX_BODY = 10 << 20
MAX_UNAUTHENTICATED = 64 << 10
"""The bytes of a body that are read before the request is authenticated."""
_AUTHENTICATED = "paddock.authenticated"
_UNBOUNDED = re.compile(r"/v1/sandboxes/[^/]+/(files|archive)$")
Observe = Callable[[str, str, int, float], None]
Bind = Callable[[str], AbstractContextManager[None]]
"""Whatever is logged inside carries the request's id."""
Authenticate = Callable[[HTTPConnection], Awaitable[object]]
"""Raises Unauthenticated, or another error, if the request's credentials are not accepted."""


class TooLarge(Exception):
    """A body beyond the cap."""


class Envelope:
    """Gives each request an id, bounds its body and measures it."""

    def __init__(
        self,
        app: ASGIApp,
        observe: Observe,
        bind: Bind,
        *,
        authenticate: Authenticate,
        unbounded: re.Pattern[str] = _UNBOUNDED,
    ) -> None:
        self._app = app
        self._unbounded = unbounded
        self._authenticate = authenticate
        self._observe = observe
        self._bind = bind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope["paddock.request_id"] = identifier = new_id("req")
        started, status = time.perf_counter(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "websocket.accept":
                status = 101
            elif message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", identifier.encode())]
            await send(message)

        bounded = receive
        if scope["type"] == "http" and not self._unbounded.search(scope["path"]):
            bounded = self._bounded(scope, receive)
        try:
            with self._bind(identifier):
                await self._app(scope, bounded, answer)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", "") or "other"
            seconds = time.perf_counter() - started
            self._observe(scope.get("method", "WS"), path, status, seconds)

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MAX_BODY:
                raise _refusal(413, f"the body is larger than {MAX_BODY >> 20} MiB")
            if taken > MAX_UNAUTHENTICATED and not scope.get(_AUTHENTICATED):
                await self._check(scope)
            return message

        return limited

    async def _check(self, scope: Scope) -> None:
        """Authenticate here: FastAPI reads the body before it runs dependencies."""
        try:
            await self._authenticate(HTTPConnection(scope))
        except Unauthenticated as error:
            most = MAX_UNAUTHENTICATED >> 10
            said = f"{error.message}; without valid credentials a body has at most {most} KiB"
            raise _refusal(401, said) from error
        except PaddockError as error:
            from paddock.interfaces.api.errors import status_of

            raise _refusal(status_of(error), error.message) from error
        mark_authenticated(scope)


def mark_authenticated(scope: Scope) -> None:
    """Let the whole body of this request be read."""
    scope[_AUTHENTICATED] = True


def _refusal(status: int, why: str) -> Exception:
    """FastAPI turns every other exception from reading a body into status 400."""
    from starlette.exceptions import HTTPException

    return HTTPException(status, why)
