"""Who may call: the access token, and the signature that stands for it on file URLs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping

from .errors import GuestError
from .http import Exchange
from .query import parse_query
from .state import GuestState

_OPERATIONS = {"GET": "read", "HEAD": "read", "POST": "write"}


def check(state: GuestState, exchange: Exchange) -> None:
    """Raise unless the request may be answered. /health never comes here."""
    offered = exchange.headers.get("x-access-token")
    if offered is not None:
        if not _matches(state.token, offered):
            raise _refused("access token present in header but does not match")
        return
    signed = exchange.path == "/files" and "signature=" in exchange.query
    if exchange.trusted and not signed:
        return
    if exchange.path == "/files":
        _check_signature(state, exchange)
        return
    raise _refused(
        "unauthorized access, please provide a valid access token or method signing if supported"
    )


def sign(path: str, operation: str, user: str, token: str, expiration: str = "") -> str:
    """The signature of a file URL, as E2B's SDKs compute it."""
    text = f"{path}:{operation}:{user}:{token}" + (f":{expiration}" if expiration else "")
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
    return "v1_" + base64.b64encode(digest).rstrip(b"=").decode("ascii")


def _check_signature(state: GuestState, exchange: Exchange) -> None:
    query: Mapping[str, str] = parse_query(exchange.query)
    offered = query.get("signature", "")
    if not offered:
        raise _refused("missing signature query parameter")
    expiration = query.get("signature_expiration", "")
    operation = _OPERATIONS.get(exchange.method, "")
    user = query.get("username", "")
    expected = sign(query.get("path", ""), operation, user, state.token, expiration)
    if not state.token or not _matches(expected, offered):
        raise _refused("invalid signature")
    if expiration and int(expiration if expiration.isdigit() else "0") < time.time():
        raise _refused("signature is already expired")


def _matches(expected: str, offered: str) -> bool:
    return bool(expected) and hmac.compare_digest(
        expected.encode("utf-8", "surrogateescape"), offered.encode("utf-8", "surrogateescape")
    )


def _refused(message: str) -> GuestError:
    return GuestError("unauthenticated", message)
