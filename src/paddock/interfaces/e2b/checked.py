"""Commands of sandboxes that have a policy: read here first, and passed on if it allows them."""

import base64
import json
from typing import Annotated, Any, NamedTuple

import aiohttp
from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from paddock.domain.errors import ApprovalRequired, Forbidden, InvalidRequest
from paddock.domain.guest import GuestAddress
from paddock.interfaces.api.context import Given
from paddock.interfaces.api.middleware import mark_authenticated
from paddock.interfaces.e2b import guards
from paddock.interfaces.e2b.calls import STREAM, failure
from paddock.interfaces.e2b.errors import text
from paddock.interfaces.e2b.ids import meant

router = APIRouter()
START = b"/process.Process/Start"
_FRAME_HEAD = 5
_PASSED = ("authorization", "content-type", "connect-timeout-ms", "keepalive-ping-interval")


class _Command(NamedTuple):
    argv: list[str]
    env: dict[str, str]
    cwd: str


@router.post(START.decode())
async def start(
    request: Request,
    given: Given,
    sandbox_id: Annotated[str, Header(alias="e2b-sandbox-id")],
    token: Annotated[str, Header(alias="x-access-token")] = "",
) -> Response:
    """The same as at the guest itself, but for what the policies say of the command."""
    sandbox = await given.e2b.passages.find(meant(sandbox_id))
    passages = given.e2b.passages
    holder = await passages.holders.find(token, sandbox.id, team_id=sandbox.team_id)
    if holder is None:
        return _refused(401, "unauthenticated", guards.UNAUTHORIZED)
    mark_authenticated(request.scope)
    content = await request.body()
    try:
        asked = _command(content)
        user = _user(request.headers.get("authorization", ""))
        argv, env, cwd = asked
        await passages.check(holder, sandbox, argv, env, cwd=cwd, user=user)
    except InvalidRequest as error:
        return _refused(400, "invalid_argument", error.message)
    except (Forbidden, ApprovalRequired) as error:
        return _refused(403, "permission_denied", text(error))
    headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
    return await _relay(await passages.address(sandbox), content, headers)


def _command(content: bytes) -> _Command:
    """The one message of the call: a frame's head, then JSON."""
    try:
        process: dict[str, Any] = json.loads(content[_FRAME_HEAD:])["process"]
        argv = [str(process["cmd"]), *map(str, process.get("args") or ())]
        env = {str(name): str(value) for name, value in (process.get("envs") or {}).items()}
        cwd = str(process.get("cwd") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidRequest("the message is not one that starts a process") from None
    return _Command(_judged(argv), env, cwd)


def _user(authorization: str) -> str:
    """Whom the guest will run it as: the name of HTTP Basic, or empty for whom it takes then."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except ValueError:
        raise InvalidRequest("the Authorization header is not HTTP Basic") from None
    return decoded.partition(":")[0]


def _judged(argv: list[str]) -> list[str]:
    """As policies know a script: the SDKs write the shell's two options apart."""
    if len(argv) == 4 and argv[1:3] == ["-l", "-c"]:
        return [argv[0], "-lc", argv[3]]
    return argv


async def _relay(address: GuestAddress, content: bytes, headers: dict[str, str]) -> Response:
    connector = aiohttp.UnixConnector(address.socket) if address.socket else None
    session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(None))
    own = {**headers, **dict(address.headers), "x-access-token": address.token}
    base = address.url.rstrip("/") or "http://guest"
    try:
        answer = await session.post(base + START.decode(), data=content, headers=own)
    except aiohttp.ClientError:
        await session.close()
        return _refused(503, "unavailable", "the sandbox's agent does not answer")
    except BaseException:
        await session.close()
        raise
    told = {"content-type": answer.headers.get("content-type", STREAM)}
    relayed = _Relayed(answer.content.iter_any(), answer.status, headers=told)
    relayed.answer, relayed.session = answer, session
    return relayed


class _Relayed(StreamingResponse):
    """Closes what it comes from, also when its client has gone before the first piece."""

    answer: aiohttp.ClientResponse
    session: aiohttp.ClientSession

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # A session that is closed does not let go of an answer that has not been read whole.
            self.answer.close()
            await self.session.close()


def _refused(status: int, code: str, message: str) -> Response:
    told = failure(STREAM, status, code, message)
    return Response(told.body, told.status, media_type=told.content_type)
