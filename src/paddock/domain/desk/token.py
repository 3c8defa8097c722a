"""The token of one run: made of what it is for, so that there is nothing to keep and to forget."""

import hashlib
import hmac

from paddock.domain.errors import Forbidden, Unauthenticated

PREFIX = "ptr"
_FIX = "use $PADDOCK_TASK_TOKEN of this run, as `Authorization: Bearer …`"


def token_of(key: bytes, task_id: str, sandbox_id: str, run: int) -> str:
    """Good for the desk of this run of this task in this sandbox, and for nothing else."""
    said = f"{task_id}|{sandbox_id}|{run}".encode()
    mac = hmac.new(key, said, hashlib.sha256).hexdigest()[:40]
    return f"{PREFIX}_{task_id.partition('_')[2]}.{run}.{mac}"


def check_token(key: bytes, offered: str, *, task_id: str, sandbox_id: str, run: int) -> None:
    """Raises unless it is the one. Whose desk it is, the caller knows by itself."""
    if not offered:
        raise Unauthenticated("there is no token", remediation=_FIX)
    if hmac.compare_digest(offered.encode(), token_of(key, task_id, sandbox_id, run).encode()):
        return
    head, _, rest = offered.partition(".")
    number, _, _mac = rest.partition(".")
    if head != f"{PREFIX}_{task_id.partition('_')[2]}":
        if head.startswith(f"{PREFIX}_"):
            raise Forbidden("this token is for the desk of another task", remediation=_FIX)
        raise Unauthenticated("this is no token of a task's run", remediation=_FIX)
    is_number = number.isascii() and number.isdigit() and len(number) < 10
    then = token_of(key, task_id, sandbox_id, int(number)) if is_number else ""
    if hmac.compare_digest(offered.encode(), then.encode()):
        raise Unauthenticated(f"this token was for run {number}, which has ended", remediation=_FIX)
    raise Unauthenticated("this token was never given out for this sandbox", remediation=_FIX)
