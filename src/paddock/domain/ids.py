"""Identifiers: prefixed ULIDs in lower case, sortable by the time they were made."""

import os
import re
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32
ULID = r"[0-9a-hjkmnp-tv-z]{26}"
_ULID = re.compile(ULID)
_ID = re.compile(rf"[a-z]{{3}}_{ULID}")


def new_ulid(now: float | None = None) -> str:
    """26 characters: 48 bits of milliseconds, then 80 random bits."""
    millis = int((time.time() if now is None else now) * 1000)
    value = (millis & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


def is_ulid(text: str) -> bool:
    return bool(_ULID.fullmatch(text))


def new_id(prefix: str) -> str:
    return f"{prefix}_{new_ulid()}"


def is_id(text: str, prefix: str | None = None) -> bool:
    return bool(_ID.fullmatch(text)) and (prefix is None or text.startswith(prefix + "_"))


def dns_label(identifier: str) -> str:
    """The form an id takes in a host name, where an underscore is not allowed."""
    return identifier.replace("_", "-")
