"""Reading the fields of a JSON message, each with a clear refusal of what cannot be meant."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from .errors import invalid

Message = dict[str, Any]


def text(message: Message, name: str, default: str | None = None) -> str:
    value = message.get(name)
    if value is None:
        if default is None:
            raise invalid(f"{name} is missing")
        return default
    if not isinstance(value, str):
        raise invalid(f"{name} must be a string")
    return value


def flag(message: Message, name: str, default: bool = False) -> bool:
    value = message.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise invalid(f"{name} must be true or false")
    return value


def number(message: Message, name: str, default: int, most: int = 2**53) -> int:
    """A whole number, at least 0. 64-bit numbers may come as strings, as proto3 JSON has them."""
    value = message.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise invalid(f"{name} must be a whole number from 0 to {most}")
    return value


def words(message: Message, name: str) -> list[str]:
    value = message.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise invalid(f"{name} must be a list of strings")
    return value


def mapping(message: Message, name: str) -> dict[str, str]:
    value = message.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise invalid(f"{name} must be an object of strings")
    return value


def inner(message: Message, name: str) -> Message:
    value = message.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"{name} must be an object")
    return value


def binary(message: Message, name: str) -> bytes:
    """Bytes as base64, in the standard or the URL alphabet, with or without padding."""
    value = text(message, name, "").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{name} is not base64") from None


def size(message: Message, name: str) -> tuple[int, int] | None:
    """Columns and rows of a terminal, directly or within `size`, as envd has it."""
    value = message.get(name)
    if value is None:
        return None
    box = inner(message, name)
    box = inner(box, "size") or box
    return number(box, "cols", 80, 65535) or 80, number(box, "rows", 24, 65535) or 24
