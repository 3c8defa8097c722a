"""How a client is told that it may not: in the words of the protocol it speaks."""

import json
from dataclasses import dataclass
from typing import Any

from paddock.domain.broker.models import Dialect

_TOO_MANY = 429
_PHRASES = {
    400: "Bad Request",
    403: "Forbidden",
    408: "Request Timeout",
    413: "Content Too Large",
    429: "Too Many Requests",
    502: "Bad Gateway",
}
_AGAIN_S = 5
"""After which it makes sense to try again."""
_KINDS = {
    Dialect.ANTHROPIC: {400: "invalid_request_error", 403: "permission_error"}
    | {408: "timeout_error", 413: "request_too_large", 429: "rate_limit_error"},
    Dialect.OPENAI: {400: "invalid_request_error", 408: "timeout", 429: "rate_limit_error"},
    Dialect.GEMINI: {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED"}
    | {408: "DEADLINE_EXCEEDED", 413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED"},
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was refused, and why."""

    sandbox: str
    host: str
    port: int
    why: str
    rule: str = ""
    status: int = 403
    code: str = "egress_denied"
    can_be_allowed: bool = False
    """By one more rule."""
    fix: str = ""
    """Who can do what, where it is no rule that is missing."""
    message: str = ""
    dialect: Dialect | None = None
    """Of a model API, whose clients want to be told in their own words."""

    @property
    def remedy(self) -> str:
        if self.fix:
            return self.fix
        if not self.can_be_allowed:
            return ""
        command = f"paddock egress allow {self.sandbox} {self.host}:{self.port}"
        return f"who owns the sandbox can allow it: {command}"


def in_words_of(dialect: Dialect, status: int, code: str, text: str) -> dict[str, Any]:
    """An error as a model API would tell it, of a kind that clients know what to do with."""
    known = _KINDS[dialect].get(status)
    if dialect is Dialect.ANTHROPIC:
        kind = known or "api_error"
        return {"type": "error", "error": {"type": kind, "message": text, "code": code}}
    if dialect is Dialect.GEMINI:
        return {"error": {"code": status, "message": text, "status": known or "UNAVAILABLE"}}
    kind = known or "permission_error"
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


def page(refusal: Refusal) -> bytes:
    """An answer of HTTP/1.1, the last on its connection."""
    place = f"{refusal.host}:{refusal.port}"
    message = refusal.message or f"{place} cannot be reached from this sandbox: {refusal.why}"
    error = {
        "code": refusal.code,
        "message": message,
        "host": refusal.host,
        "port": refusal.port,
        "rule": refusal.rule or None,
        "remediation": refusal.remedy,
    }
    said = {"error": error}
    if refusal.dialect is not None:
        text = f"{message}; {refusal.remedy}" if refusal.remedy else message
        said = in_words_of(refusal.dialect, refusal.status, refusal.code, text)
    body = json.dumps(said).encode() + b"\n"
    again = f"Retry-After: {_AGAIN_S}\r\n" if refusal.status == _TOO_MANY else ""
    head = (
        f"HTTP/1.1 {refusal.status} {_PHRASES[refusal.status]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"{again}X-Paddock-Egress: denied\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
