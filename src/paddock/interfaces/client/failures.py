"""From what a server answers, or fails to, to the one error tree."""

from collections.abc import Mapping
from typing import Any

import msgspec

from paddock.domain.errors import Broken, PaddockError, Unavailable, not_started


class CommandFailed(Exception):
    """A command that was to succeed did not. A result otherwise: this is raised on request only."""

    def __init__(self, command: str, exit_code: int, stdout: str, stderr: str) -> None:
        said = f": {stderr.strip()[-500:]}" if stderr.strip() else ""
        super().__init__(f"{command} ended with exit code {exit_code}{said}")
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr


def _tree(root: type[PaddockError]) -> list[type[PaddockError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _tree(child))]


BY_CODE: Mapping[str, type[PaddockError]] = {kind.code: kind for kind in _tree(PaddockError)}


def from_answer(
    status: int, content: bytes, *, request_id: str = "", retry_after_s: float | None = None
) -> PaddockError:
    """The error that an answer stands for."""
    try:
        detail = msgspec.json.decode(content)["error"]
        return from_detail({"request_id": request_id, **detail}, retry_after_s)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        kind = Unavailable if status in (502, 503, 504) else Broken
        shown = content[:200].decode(errors="replace").strip()
        return _with_request(
            kind(
                f"the server answered {status} with something else than Paddock: {shown!r}",
                remediation="is the address that of a Paddock server?",
            ),
            request_id,
        )


def from_detail(detail: Mapping[str, Any], retry_after_s: float | None = None) -> PaddockError:
    """The error in an answer's body, or in a stream's last message."""
    kind = BY_CODE.get(str(detail.get("code", "")), PaddockError)
    error = kind(
        str(detail.get("message", "")),
        remediation=str(detail.get("remediation", "")),
        retry_after_s=retry_after_s,
    )
    error.exit_code = not_started(detail.get("exit_code"))
    return _with_request(error, str(detail.get("request_id", "")))


def unreachable(url: str, why: object) -> Unavailable:
    said = str(why) or type(why).__name__
    return Unavailable(
        f"no server answers at {url}: {said}",
        remediation="start one with `paddock up`, or set PADDOCK_URL to where one is",
    )


def was_unreachable(error: PaddockError) -> bool:
    """Nothing was asked of anybody."""
    return vars(error).get("sent") is False


def interrupted(url: str, what: str, why: object) -> Unavailable:
    """Asked, and never answered: whether it was done is not known."""
    said = str(why) or type(why).__name__
    return Unavailable(
        f"{url} went away during {what}: {said}",
        remediation="look whether it was done before you ask again",
    )


def _with_request(error: PaddockError, request_id: str) -> PaddockError:
    error.request_id = request_id
    return error
