"""What both of OpenAI's APIs share: the shape of an error."""

from paddock.testing.models.conversation import Json
from paddock.testing.models.script import Fail

_KINDS = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", None),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}


def error(failure: Fail, request_id: str) -> Json:
    usual = "server_error" if failure.status >= 500 else "invalid_request_error"
    kind, code = _KINDS.get(failure.status, (usual, None))
    shape = {"message": failure.message, "type": failure.kind or kind, "param": None, "code": code}
    return {"error": shape}
