"""Reading what the guest says: it is hostile, so every field is checked before it is believed."""

import base64
import binascii
import json
import re
from enum import StrEnum
from typing import Any, TypeVar

from paddock.domain.errors import (
    Broken,
    Conflict,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PaddockError,
    TimedOut,
    Unauthenticated,
    Unavailable,
    Unsupported,
    not_started,
)
from paddock.domain.reason import Reason

Message = dict[str, Any]
_Kind = TypeVar("_Kind", bound=StrEnum)

_BY_CODE: dict[str, type[PaddockError]] = {
    "invalid_argument": InvalidRequest,
    "not_found": NotFound,
    "already_exists": Conflict,
    "failed_precondition": Conflict,
    "unauthenticated": Unauthenticated,
    "permission_denied": Forbidden,
    "resource_exhausted": LimitExceeded,
    "unimplemented": Unsupported,
    "deadline_exceeded": TimedOut,
    "canceled": TimedOut,
    "unavailable": Unavailable,
}
_BY_STATUS: dict[int, type[PaddockError]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: LimitExceeded,
    416: InvalidRequest,
    429: LimitExceeded,
    501: Unsupported,
    502: Unavailable,
    503: Unavailable,
    504: TimedOut,
    507: LimitExceeded,
}
_LONGEST_MESSAGE = 2000
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_MOST = 1 << 63


def parse(data: bytes, what: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Broken(f"the guest's answer to {what} is not JSON: {error}") from None


def parse_object(data: bytes, what: str) -> Message:
    message = parse(data, what)
    if not isinstance(message, dict):
        raise Broken(f"the guest's answer to {what} is not an object")
    return message


def error_of(status: int, data: bytes, what: str) -> PaddockError:
    """The error that an answer other than success stands for."""
    try:
        body = parse_object(data, what)
    except Broken:
        body = {}
    kind = _BY_CODE.get(str(body.get("code"))) or _BY_STATUS.get(status, Broken)
    return _with_exit_code(
        kind(_said(body) or f"{what}: the guest answered with status {status}"), body
    )


def error_in(body: Message, what: str) -> PaddockError:
    """The error in the last frame of a stream."""
    error = body.get("error")
    error = error if isinstance(error, dict) else {}
    kind = _BY_CODE.get(str(error.get("code")), Broken)
    return _with_exit_code(
        kind(_said(error) or f"{what}: the guest ended the stream with an error"), error
    )


def _with_exit_code(error: PaddockError, body: Message) -> PaddockError:
    error.exit_code = not_started(body.get("exitCode"))
    return error


def _said(error: Message) -> str:
    message = error.get("message")
    if not isinstance(message, str):
        return ""
    # Lone surrogates stand for bytes in names; an error is read by people, and sent as UTF-8.
    return message[:_LONGEST_MESSAGE].encode("utf-8", "backslashreplace").decode()


def text(message: Message, name: str, default: str | None = None) -> str:
    value = message.get(name, default)
    if not isinstance(value, str):
        raise _impossible(name, value)
    return value


def flag(message: Message, name: str, default: bool = False) -> bool:
    value = message.get(name, default)
    if not isinstance(value, bool):
        raise _impossible(name, value)
    return value


def whole(message: Message, name: str, default: int | None = None) -> int:
    """A whole number; 64-bit ones may come as strings."""
    value = message.get(name, default)
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -_MOST <= value < _MOST:
        raise _impossible(name, value)
    return value


def number(message: Message, name: str, default: float | None = None) -> float:
    value = message.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _impossible(name, value)
    if not -_MOST <= value < _MOST:  # neither has what is not a number a place among them
        raise _impossible(name, value)
    return float(value)


def inner(message: Message, name: str) -> Message:
    value = message.get(name, {})
    if not isinstance(value, dict):
        raise _impossible(name, value)
    return value


def many(message: Message, name: str) -> list[Message]:
    value = message.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise _impossible(name, value)
    return value


def texts(message: Message, name: str) -> dict[str, str]:
    value = inner(message, name)
    return {str(key): str(item) for key, item in value.items()}


def words(message: Message, name: str) -> tuple[str, ...]:
    value = message.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _impossible(name, value)
    return tuple(value)


def binary(message: Message, name: str) -> bytes:
    value = text(message, name, "")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _impossible(name, value) from None


def choice(message: Message, name: str, kinds: type[_Kind]) -> _Kind:
    value = text(message, name)
    try:
        return kinds(value)
    except ValueError:
        raise _impossible(name, value) from None


def reason(message: Message, name: str = "reason") -> Reason:
    return choice(message, name, Reason)


def _impossible(name: str, value: object) -> Broken:
    return Broken(f"the guest sent {str(value)[:100]!r} as {name}, which cannot be")
