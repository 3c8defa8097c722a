"""`/v1/sandboxes/{sandbox}/terminal`: a terminal over a WebSocket."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from inspect import signature
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, WebSocket
from fastapi.responses import JSONResponse
from pydantic import Field, ValidationError
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect

from paddock.domain.errors import Forbidden, InvalidRequest, PaddockError, Unauthenticated
from paddock.guest_client.runs import RunExit
from paddock.interfaces.api import streams
from paddock.interfaces.api.context import Given, Who, services_of
from paddock.interfaces.api.errors import plain_body
from paddock.interfaces.api.schemas.commands import Resize
from paddock.interfaces.api.schemas.common import ErrorBody, Shape, Text
from paddock.services.commands import Command
from paddock.services.terminals import Terminal, TerminalWish

router = APIRouter(prefix="/v1/sandboxes/{sandbox}", tags=["commands"])
PROTOCOL = "paddock.terminal"
_LARGEST_INPUT = 1 << 20
_DONE, _WRONG, _BROKEN = 1000, 1008, 1011
_LAST_WORD_S = 5.0
_SIDE = Query(ge=1, le=4096)
_UPGRADE: dict[int | str, dict[str, Any]] = {
    426: {"description": "this is no WebSocket", "model": ErrorBody}
}


async def wish(
    connection: HTTPConnection,
    columns: Annotated[int | None, _SIDE] = None,
    rows: Annotated[int | None, _SIDE] = None,
    *,
    cmd: Annotated[
        list[Text] | None, Query(max_length=256, description="word by word; a shell unless said")
    ] = None,
    cwd: Annotated[Text, Query(max_length=4096)] = "",
    user: Annotated[Text, Query(max_length=64)] = "",
    command: Annotated[
        str, Query(max_length=64, description="go back to this one instead of starting one")
    ] = "",
    cursor: Annotated[
        str, Query(max_length=200, description="how much of it was seen, such as `pty:120`")
    ] = "",
) -> TerminalWish:
    _check_known(connection)
    size = (columns or 80, rows or 24) if columns or rows else None
    asked = Command(tuple(cmd or ()), cwd, user)
    return TerminalWish(size, asked, command, streams.offsets_of(cursor).get("pty", 0))


def _check_known(connection: HTTPConnection) -> None:
    """A name that is misspelt would open a terminal of another size, or another one."""
    if unknown := sorted(set(connection.query_params) - _QUERY):
        raise InvalidRequest(
            f"query.{unknown[0][:40]}: a terminal has no such parameter",
            remediation=f"these are known: {', '.join(sorted(_QUERY))}",
        )


_QUERY = frozenset(signature(wish).parameters) - {"connection"}
Wished = Annotated[TerminalWish, Depends(wish)]


class Control(Shape):
    """A text message of the client; what is typed comes as binary ones."""

    resize: Annotated[Resize | None, Field(description="the screen's new size")] = None


@router.get("/terminal", status_code=426, responses=_UPGRADE, response_class=JSONResponse)
async def explain(
    request: Request, given: Given, who: Who, *, sandbox: str, wished: Wished
) -> JSONResponse:
    """A terminal, for who asks with `Upgrade: websocket`.

    Binary messages are bytes both ways. Text messages are JSON: the client sends
    `{"resize": {"columns": 120, "rows": 40}}`; the server sends `{"started": {"id", "offset"}}`
    first, `{"lost": {"bytes"}}` where output is not there any more, `{"exit": {"exit_code",
    "reason", …}}` at the end, and `{"error": {…}}`.

    Closing the socket leaves the command running. To go back to it, name it with `command` and say
    with `cursor` how many bytes were seen: `pty:` and the offset of `started` plus all bytes since.

    Browsers cannot set headers: they offer the subprotocols `paddock.terminal` and
    `paddock.token.TOKEN`. An open terminal counts as work, so its sandbox does not idle.
    """
    await given.sandboxes.get(who, sandbox)
    message = "a terminal is a WebSocket, and this request is none"
    body = plain_body(request, "invalid_request", message, "send `Upgrade: websocket`")
    return JSONResponse(body, 426, headers={"upgrade": "websocket"})


@router.websocket("/terminal")
async def sit(socket: WebSocket, who: Who, sandbox: str, wished: Wished) -> None:
    given = services_of(socket)
    async with AsyncExitStack() as stack:
        # What goes wrong up to here is an ordinary answer instead of a WebSocket.
        terminal = await stack.enter_async_context(given.terminals.open(who, sandbox, wished))
        await socket.accept(_protocol(socket))
        stay = stack.enter_context(given.access.stays.stay(who))
        try:
            with stay.attending():
                await _converse(socket, terminal, wished.offset)
        except (Unauthenticated, Forbidden) as error:
            await _finish(socket, {"error": error.as_dict()}, _WRONG)
        except PaddockError as error:
            await _finish(socket, {"error": error.as_dict()}, _BROKEN)
        except WebSocketDisconnect:
            return


def _protocol(socket: WebSocket) -> str | None:
    """A browser gives up unless one of those it offered is taken."""
    offered: list[str] = socket.scope.get("subprotocols", [])
    return PROTOCOL if PROTOCOL in offered else next(iter(offered), None)


async def _converse(socket: WebSocket, terminal: Terminal, offset: int) -> None:
    await socket.send_json({"started": {"id": terminal.id, "offset": offset}})
    listening = asyncio.create_task(_listen(socket, terminal), name=f"input of {terminal.id}")
    telling = asyncio.create_task(_tell(socket, terminal, offset), name=f"tell {terminal.id}")
    try:
        await asyncio.wait({listening, telling}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (listening, telling):
            task.cancel()
        outcomes = await asyncio.gather(listening, telling, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


async def _tell(socket: WebSocket, terminal: Terminal, offset: int) -> None:
    async for item in terminal.output(offset):
        if isinstance(item, RunExit):
            await _finish(socket, {"exit": asdict(item)}, _DONE)
            return
        if item.lost:
            await socket.send_json({"lost": {"bytes": item.lost}})
        if item.data:
            await socket.send_bytes(item.data)


async def _listen(socket: WebSocket, terminal: Terminal) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        try:
            await _obey(terminal, message)
        except PaddockError as error:
            await socket.send_json({"error": error.as_dict()})


async def _obey(terminal: Terminal, message: Mapping[str, Any]) -> None:
    if message.get("bytes") is not None:
        for start in range(0, len(message["bytes"]), _LARGEST_INPUT):
            await terminal.send(message["bytes"][start : start + _LARGEST_INPUT])
        return
    try:
        control = Control.model_validate_json(message["text"])
    except ValidationError:
        raise InvalidRequest(
            "this text message is not understood",
            remediation='send {"resize": {"columns": 80, "rows": 24}}; input is binary',
        ) from None
    if control.resize is not None:
        await terminal.resize(control.resize.columns, control.resize.rows)


async def _finish(socket: WebSocket, last: dict[str, Any], code: int) -> None:
    """Who takes nothing any more is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WORD_S):
            await socket.send_text(json.dumps(last))
            await socket.close(code)
