"""Signatures of file URLs, as E2B's SDKs make them of a sandbox's access token."""

import base64
import hashlib
import hmac
import re

from paddock.interfaces.e2b.addresses import FileUrl

_FORM = re.compile(r"v1_[A-Za-z0-9+/]{43}")
_OPERATIONS = {"GET": "read", "HEAD": "read", "POST": "write"}


def fits(url: FileUrl, method: str, token: str) -> bool:
    """Whether it was made with this token for what is asked."""
    text = f"{url.path}:{_OPERATIONS.get(method, '')}:{url.user}:{token}"
    if url.expiration:
        text += f":{url.expiration}"
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
    expected = b"v1_" + base64.b64encode(digest).rstrip(b"=")
    return hmac.compare_digest(url.signature.encode("utf-8", "surrogateescape"), expected)


def is_signature(url: FileUrl) -> bool:
    """Whether it has the form of one."""
    return bool(_FORM.fullmatch(url.signature))


def is_expired(url: FileUrl, now: float) -> bool:
    if not url.expiration:
        return False
    return not url.expiration.isdecimal() or int(url.expiration) < now
