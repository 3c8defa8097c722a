"""Who is let through to a sandbox, decided from a request's head alone."""

import json
import re

from paddock.domain.errors import Forbidden
from paddock.domain.records import SandboxRecord
from paddock.domain.team import Principal
from paddock.interfaces.e2b import interpreter
from paddock.interfaces.e2b.addresses import FileUrl, file_url_of, unclear
from paddock.interfaces.e2b.calls import failure
from paddock.interfaces.e2b.errors import text
from paddock.interfaces.e2b.ids import shown
from paddock.interfaces.e2b.marks import Mark, mark_of
from paddock.interfaces.e2b.signatures import fits, is_expired
from paddock.interfaces.preview import Reply, RequestHead
from paddock.services.holders import GUEST, PORT
from paddock.services.passages import Passages, check_open

TOKEN, TRAFFIC = b"x-access-token", b"e2b-traffic-access-token"
_CALL = re.compile(rb"/(?:process\.Process|filesystem\.Filesystem)/[A-Za-z]+")
_PLAIN = frozenset({b"/files", b"/health", b"/metrics", b"/envs"})
"""Of all that a guest answers, clients get to what E2B's own has; the rest is Paddock's."""
UNAUTHORIZED = (
    "unauthorized access, please provide a valid access token or method signing if supported"
)
WRONG_TOKEN = "access token present in header but does not match"  # noqa: S105 - a message


Admission = Reply | Principal | None
"""Why not; or who was let in, None where that takes nobody."""


async def to_guest(
    head: RequestHead, sandbox: SandboxRecord, passages: Passages, now: float
) -> Admission:
    path = head.path
    if path not in _PLAIN and not _CALL.fullmatch(path):
        return said(404, f"there is no {path.decode('latin-1')[:80]}")
    if path == b"/health":
        return None
    if path == b"/files" and (why := unclear(head)):
        return said(400, why)
    if (offered := head.get(TOKEN)) is not None:
        holder = await _holder(offered, sandbox, passages)
        return holder or _unauthenticated(head, path, WRONG_TOKEN)
    if path != b"/files":
        return _unauthenticated(head, path, UNAUTHORIZED)
    return await _signed(file_url_of(head), head.method, sandbox, passages, now=now)


async def _signed(
    url: FileUrl | None, method: str, sandbox: SandboxRecord, passages: Passages, *, now: float
) -> Admission:
    if url is None:
        return said(401, "missing signature query parameter")
    token = next(
        (each for each in passages.holders.tokens_of(sandbox) if fits(url, method, each)), ""
    )
    holder = await passages.holders.find(token, sandbox.id, team_id=sandbox.team_id)
    if holder is None:
        return said(401, "invalid signature")
    return said(401, "signature is already expired") if is_expired(url, now) else holder


async def to_port(
    head: RequestHead, sandbox: SandboxRecord, port: int, passages: Passages
) -> Admission:
    """Only what was made for everyone to see is seen without the traffic token, and what runs
    code never is."""
    runs_code = port == interpreter.PORT
    public = mark_of(sandbox, Mark.TRAFFIC) == "public" or port in sandbox.public_ports
    if public and not runs_code:
        return None
    token = head.get(TOKEN) if runs_code else None
    if token is not None and (holder := await _holder(token, sandbox, passages)):
        return holder
    offered = head.get(TRAFFIC)
    if offered is not None and (holder := await _holder(offered, sandbox, passages, PORT)):
        return holder
    message = (
        "Sandbox is secured with traffic access token. "
        f"Token header '{TRAFFIC.decode()}' is {'missing' if offered is None else 'wrong'}"
    )
    return said(403, message, sandboxId=shown(sandbox.id))


async def _holder(
    offered: bytes, sandbox: SandboxRecord, passages: Passages, purpose: str = GUEST
) -> Principal | None:
    return await passages.holders.find(
        offered.decode("latin-1"), sandbox.id, purpose, team_id=sandbox.team_id
    )


def if_closed(sandbox: SandboxRecord) -> Reply | None:
    """For who would be let through otherwise, so that nobody else hears of it."""
    try:
        check_open(sandbox)
    except Forbidden as error:
        return said(403, text(error), sandboxId=shown(sandbox.id))
    return None


def said(status: int, message: str, **more: object) -> Reply:
    """An answer in place of the sandbox's, as E2B's own proxy gives it."""
    body = json.dumps({**more, "message": message, "code": status}).encode()
    return Reply(status, ((b"Content-Type", b"application/json"),), body)


def _unauthenticated(head: RequestHead, path: bytes, message: str) -> Reply:
    if path in _PLAIN:
        return said(401, message)
    asked = (head.get(b"content-type") or b"").decode("latin-1")
    told = failure(asked, 401, "unauthenticated", message)
    return Reply(told.status, ((b"Content-Type", told.content_type.encode()),), told.body)
