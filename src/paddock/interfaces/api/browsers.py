"""What is different when a browser asks: cookies go with every request, whoever's page sends it."""

from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from paddock.domain import session
from paddock.domain.errors import Forbidden

COOKIE = "paddock_session"
_HOST_COOKIE = f"__Host-{COOKIE}"
CSRF_HEADER = "x-paddock-csrf"
_HARMLESS = ("GET", "HEAD", "OPTIONS")


def is_secure(connection: HTTPConnection, public_url: str) -> bool:
    """Whether browsers come by HTTPS; a proxy in front may end it."""
    url = public_url or str(connection.url)
    return urlsplit(url).scheme in ("https", "wss")


def cookie_of(connection: HTTPConnection, public_url: str) -> str:
    """By HTTPS only the name that no other host can set: a preview may be on a host below ours."""
    name = _HOST_COOKIE if is_secure(connection, public_url) else COOKIE
    return connection.cookies.get(name, "")


def set_cookie(
    response: Response, connection: HTTPConnection, public_url: str, *, value: str, lasts_s: float
) -> None:
    """Ends it when the value is empty."""
    secure = is_secure(connection, public_url)
    response.set_cookie(
        _HOST_COOKIE if secure else COOKIE,
        value,
        max_age=round(lasts_s) if value else 0,
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def check_intended(connection: HTTPConnection, cookie: str, public_url: str) -> None:
    """Forbidden when another site's page may have sent what the cookie came with."""
    check_origin(connection, public_url)
    is_request = connection.scope["type"] == "http"
    if is_request and connection.scope["method"] not in _HARMLESS:
        session.check_csrf(cookie, connection.headers.get(CSRF_HEADER, ""))


def check_origin(connection: HTTPConnection, public_url: str) -> None:
    """Forbidden for writes and WebSockets of a page that is not ours. Programs send no origin."""
    origin = connection.headers.get("origin")
    harmless = connection.scope["type"] == "http" and connection.scope["method"] in _HARMLESS
    if origin is None or harmless:
        return
    ours = {connection.headers.get("host", "").lower(), urlsplit(public_url).netloc.lower()}
    if urlsplit(origin).netloc.lower() not in ours - {""}:
        raise Forbidden(
            f"a page of {origin[:200]} may not do this here",
            remediation="use a token instead of a cookie; set server.public_url if this is ours",
        )
