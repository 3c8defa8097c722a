"""The answers that every route has besides its own, as the OpenAPI document tells of them."""

from typing import Any

from paddock.interfaces.api.middleware import MAX_BODY
from paddock.interfaces.api.schemas.common import ErrorBody

# Also what the listener in front says of a request that takes too long or is too large.
_ALWAYS = (400, 401, 403, 404, 408, 409, 413, 414, 429, 431, 500, 501, 502, 503, 504)
_REQUEST_ID = {
    "description": "what the server's log has the request under",
    "required": True,
    "schema": {"type": "string"},
}
_RETRY_AFTER = {
    "description": "when to ask again, in seconds",
    "required": True,
    "schema": {"type": "integer", "minimum": 1},
}
_CHALLENGE = {"description": "`Bearer`", "required": True, "schema": {"type": "string"}}
_SAYS = {
    401: ("Unauthenticated", "nobody we know: the token or session is missing, wrong or has ended"),
    413: (
        "TooLarge",
        f"the body is larger than {MAX_BODY >> 20} MiB; files and archives have no such limit",
    ),
    429: (
        "TooMany",
        "more requests than `server.requests_per_second` and `server.requests_burst` allow one "
        "token, or a quota is used up",
    ),
    503: ("Unavailable", "the provider or the server cannot do it now; it may work when repeated"),
}
_HEADERS = {
    401: {"WWW-Authenticate": _CHALLENGE},
    429: {"Retry-After": _RETRY_AFTER},
    503: {"Retry-After": _RETRY_AFTER},
}


def describe_errors(document: dict[str, Any]) -> None:
    """Every route says which errors it has, in their one shape."""
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    body = ErrorBody.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= body.pop("$defs", {}) | {"ErrorBody": body}
    said: dict[int, tuple[str, str]] = {
        0: ("Error", "what went wrong, and what to do about it"),
        **_SAYS,
    }
    document["components"]["responses"] = {
        name: _answer(description, _HEADERS.get(status, {}))
        for status, (name, description) in said.items()
    }
    for operations in document["paths"].values():
        for operation in operations.values():
            _describe(operation["responses"])


def _answer(description: str, headers: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "headers": {"X-Request-ID": _REQUEST_ID, **headers},
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
    }


def _describe(answers: dict[str, Any]) -> None:
    answers.pop("422", None)
    for status in _ALWAYS:
        name, _ = _SAYS.get(status, ("Error", ""))
        answers.setdefault(str(status), {"$ref": f"#/components/responses/{name}"})
