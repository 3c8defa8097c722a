"""Links to private previews: signed, bound to one port of one sandbox, and ending by themselves."""

import base64
import hashlib
import hmac
from dataclasses import dataclass

from paddock.domain.errors import InvalidRequest, Unauthenticated

DEFAULT_LINK_S = 3600.0
MAX_LINK_S = 30 * 86400.0
_MAC_BYTES = 16


@dataclass(frozen=True, slots=True)
class PreviewLink:
    """What a link lets its bearer see, and until when."""

    sandbox_id: str
    port: int
    expires_at: int
    generation: int = 0
    """Of the sandbox's links: when it grows, all earlier links end."""


def check_lifetime(seconds: float) -> float:
    if 1 <= seconds <= MAX_LINK_S:
        return seconds
    raise InvalidRequest(
        f"a link cannot last {seconds:g} s",
        remediation=f"ask for between 1 s and {MAX_LINK_S:g} s",
    )


def sign(link: PreviewLink, key: bytes) -> str:
    """The link as a word that fits a URL and a cookie."""
    content = f"{link.sandbox_id}.{link.port}.{link.expires_at}.{link.generation}"
    return f"{content}.{_mac(content, key)}"


def read(text: str, key: bytes, now: float) -> PreviewLink:
    """What was signed; Unauthenticated when it was not, or is over."""
    content, _, mac = text.rpartition(".")
    if not hmac.compare_digest(mac.encode(), _mac(content, key).encode()):
        raise Unauthenticated(
            "this link is not valid", remediation="ask whoever shared it for a new one"
        )
    sandbox_id, port, expires_at, generation = content.split(".")
    link = PreviewLink(sandbox_id, int(port), int(expires_at), int(generation))
    check_lasts(link, now)
    return link


def check_lasts(link: PreviewLink, now: float) -> None:
    """Unauthenticated when it has expired."""
    if now >= link.expires_at:
        raise Unauthenticated(
            "this link has expired", remediation="ask whoever shared it for a new one"
        )


def _mac(content: str, key: bytes) -> str:
    full = hmac.new(key, f"paddock preview {content}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(full[:_MAC_BYTES]).decode().rstrip("=")
