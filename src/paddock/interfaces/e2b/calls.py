"""Errors of remote calls in the form that says the most to clients: streams have them last."""

import json
import struct
from typing import NamedTuple

STREAM = "application/connect+json"
_LAST_FRAME = 2


class Failure(NamedTuple):
    """What a call is answered with that is not let through."""

    status: int
    content_type: str
    body: bytes


def failure(asked: str, status: int, code: str, message: str) -> Failure:
    """`asked` is the content type of the call. A stream that ends with anything but 200 is told of
    by its number alone: clients do not read on."""
    error = {"code": code, "message": message}
    if asked.partition(";")[0].strip().lower() != STREAM:
        return Failure(status, "application/json", json.dumps(error).encode())
    body = json.dumps({"error": error}).encode()
    return Failure(200, STREAM, struct.pack("!BI", _LAST_FRAME, len(body)) + body)
