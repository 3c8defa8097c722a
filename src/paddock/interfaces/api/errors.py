"""Errors as HTTP answers: one table, one body."""

import logging
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import (
    RequestValidationError,
    ValidationException,
    WebSocketRequestValidationError,
)
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from paddock.domain import errors
from paddock.domain.errors import PaddockError

_log = logging.getLogger(__name__)

STATUS: Mapping[type[PaddockError], int] = {
    errors.InvalidRequest: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.ApprovalRequired: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.LimitExceeded: 429,
    errors.QuotaExceeded: 429,
    errors.Unsupported: 501,
    errors.Broken: 502,
    errors.Refused: 502,
    errors.Unavailable: 503,
    errors.TimedOut: 504,
}
_RETRY_AFTER_S = {429: 1.0, 503: 5.0}
_ROOM_S = 30.0
"""When to look whether there is room again, where nobody knows."""
LEFT = "the request's body ended before it was complete"
_OF_STATUS = {
    401: ("unauthenticated", "send `Authorization: Bearer TOKEN`"),
    404: ("not_found", "look at /v1/openapi.json for what there is"),
    405: ("invalid_request", "look at /v1/openapi.json for the methods of this path"),
    413: ("too_large", "send less, or use the file routes for large content"),
}


def install(app: FastAPI) -> None:
    """Every error of any kind leaves in the same shape."""

    @app.exception_handler(PaddockError)
    async def ours(request: Request, error: PaddockError) -> JSONResponse:
        if (status := status_of(error)) >= 500 and status != 501:
            details = {"code": error.code, "error": error.message}
            _log.warning("request could not be fulfilled", extra=details)
        return answer(error, request_id(request))

    @app.exception_handler(WebSocketRequestValidationError)
    @app.exception_handler(RequestValidationError)
    async def unreadable(request: Request, error: ValidationException) -> JSONResponse:
        return answer(explained(error), request_id(request))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        code, remediation = _OF_STATUS.get(error.status_code, ("invalid_request", ""))
        what = f"{request.scope.get('method', 'WebSocket')} {request.url.path[:200]}"
        body = plain_body(request, code, f"{what}: {error.detail}", remediation)
        return JSONResponse(body, error.status_code, headers=dict(error.headers or {}))

    @app.exception_handler(ClientDisconnect)
    async def left(request: Request, _error: ClientDisconnect) -> JSONResponse:
        # Not logged: no token is needed for this, so anyone could fill the log.
        return JSONResponse(plain_body(request, "invalid_request", LEFT, "send all of it"), 400)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        # Outside of what every request passes through, so its id is not bound here.
        if isinstance(broke := error.__cause__, PaddockError):
            # In the middle of an answer, where only breaking off can say it.
            details = {"code": broke.code, "error": broke.message, "request": request_id(request)}
            _log.warning("answer broken off", extra=details)
            return answer(broke, request_id(request))
        _log.error("request failed", exc_info=error, extra={"request": request_id(request)})
        message = "the server made a mistake; its log has the details under this request id"
        return JSONResponse(plain_body(request, "internal", message, "report it"), 500)


def answer(error: PaddockError, request: str) -> JSONResponse:
    status = status_of(error)
    body = _body(error.as_dict(), request)
    headers = {}
    usual = _ROOM_S if isinstance(error, errors.QuotaExceeded) else _RETRY_AFTER_S.get(status)
    if (after := error.retry_after_s or usual) is not None:
        headers["retry-after"] = str(max(1, round(after)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(body, status, headers=headers)


def status_of(error: PaddockError) -> int:
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def explained(error: ValidationException) -> errors.InvalidRequest:
    """The first few things that are wrong, each with its place, and never the value given."""
    problems = [
        f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()
    ]
    shown = "; ".join(problems[:5]) + ("; …" if len(problems) > 5 else "")
    return errors.InvalidRequest(
        f"the request is not understood: {shown}",
        remediation="/v1/openapi.json says what this route takes",
    )


def request_id(request: Request) -> str:
    return str(request.scope.get("paddock.request_id", ""))


def plain_body(request: Request, code: str, message: str, remediation: str) -> dict[str, object]:
    """For answers that no error of ours stands for."""
    plain = {"code": code, "message": message, "retryable": False, "remediation": remediation}
    return _body(plain, request_id(request))


def _body(error: Mapping[str, object], request: str) -> dict[str, object]:
    """Messages name what was asked for, and a file's name may be no text."""
    shown = {
        name: _text(value) if isinstance(value, str) else value for name, value in error.items()
    }
    return {"error": {**shown, "request_id": request}}


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()
