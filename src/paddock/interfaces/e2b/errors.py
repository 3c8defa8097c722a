"""Errors as E2B's clients expect them: one table, and one body for whatever goes wrong."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from paddock.domain import errors
from paddock.domain.errors import PaddockError
from paddock.interfaces.api.errors import LEFT, explained

_log = logging.getLogger(__name__)


class Told(NamedTuple):
    """How an error is told: a status, E2B's own word for it, and whether the SDK may try again."""

    status: int
    word: str = ""
    again: bool = False


TABLE: Mapping[type[PaddockError], Told] = {
    errors.InvalidRequest: Told(400),
    errors.Unauthenticated: Told(401),
    errors.Forbidden: Told(403),
    errors.ApprovalRequired: Told(403),
    errors.NotFound: Told(404),
    errors.Conflict: Told(409),
    errors.TooLarge: Told(413),
    errors.LimitExceeded: Told(429, again=True),
    errors.QuotaExceeded: Told(429),
    errors.Unsupported: Told(501),
    errors.Broken: Told(500, "internal_server_error"),
    errors.Refused: Told(500, "sandbox_create_refused"),
    errors.Unavailable: Told(503, "sandbox_capacity_unavailable", again=True),
    errors.TimedOut: Told(504),
}
"""What is not to be tried again is said to be so: the SDKs repeat a create on their own."""


def install(app: FastAPI) -> None:
    """Every answer that is an error has a number and a message, the framework's own too."""

    @app.exception_handler(PaddockError)
    async def ours(_request: Request, error: PaddockError) -> JSONResponse:
        if told(error).status >= 500:
            details = {"code": error.code, "error": error.message}
            _log.warning("request could not be fulfilled", extra=details)
        return answer(error)

    @app.exception_handler(RequestValidationError)
    async def unreadable(_request: Request, error: RequestValidationError) -> JSONResponse:
        return answer(explained(error))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.method} {request.url.path[:200]}: {error.detail}"
        return JSONResponse(body(error.status_code, message), error.status_code)

    @app.exception_handler(ClientDisconnect)
    async def left(_request: Request, _error: ClientDisconnect) -> JSONResponse:
        return JSONResponse(body(400, LEFT), 400)

    @app.exception_handler(Exception)
    async def unexpected(_request: Request, error: Exception) -> JSONResponse:
        _log.error("request failed", exc_info=error)
        message = "the server made a mistake; its log has the details"
        return JSONResponse(body(500, message, "internal_server_error"), 500)


def answer(error: PaddockError) -> JSONResponse:
    status, word, again = told(error)
    headers = {"should-retry": "true" if again else "false"} if status >= 429 else {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after_s)))
    return JSONResponse(body(status, text(error), word), status, headers=headers)


def told(error: PaddockError) -> Told:
    return next((TABLE[kind] for kind in type(error).__mro__ if kind in TABLE), Told(500))


def text(error: PaddockError) -> str:
    """One line: the SDKs show nothing but the message."""
    return f"{error.message}; {error.remediation}" if error.remediation else error.message


def body(status: int, message: str, word: str = "") -> dict[str, object]:
    shown = message.encode("utf-8", "backslashreplace").decode()
    found: dict[str, object] = {"code": status, "message": shown}
    return {**found, "error_code": word} if word else found
