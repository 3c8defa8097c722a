"""Why a message is not passed on."""


class Refusal(Exception):
    """The client's message is answered with `status` and the connection is closed."""

    def __init__(self, status: int, code: str, message: str, remediation: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.remediation = remediation


class Garbled(Exception):
    """An upstream sent what is not HTTP."""


def malformed(message: str) -> Refusal:
    return Refusal(400, "malformed_request", message, "send one well-formed HTTP/1.1 request")
