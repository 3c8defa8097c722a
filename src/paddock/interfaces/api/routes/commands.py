"""`/v1/sandboxes/{sandbox}/exec` and `/commands`: what runs inside."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from paddock.domain.team import Principal
from paddock.guest_client.runs import Run
from paddock.interfaces.api import streams
from paddock.interfaces.api.attendance import Calling
from paddock.interfaces.api.context import Given, Key, Services, Who
from paddock.interfaces.api.errors import request_id
from paddock.interfaces.api.lean import Lean
from paddock.interfaces.api.paging import cursors_like
from paddock.interfaces.api.schemas.commands import (
    CommandShape,
    ExecRequest,
    ExecResult,
    Input,
    Resize,
    Signal,
    StartCommand,
    show_command,
    show_result,
)
from paddock.interfaces.api.schemas.common import ListOf, page_of
from paddock.interfaces.api.streams import Format
from paddock.ports.store import Page

router = APIRouter(prefix="/v1/sandboxes/{sandbox}", tags=["commands"], route_class=Lean)
# When it started, and its key: as the list makes them.
_Page = Annotated[Page, cursors_like(r"[0-9]{10}\.[0-9]{6}:[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")]
_STREAMS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "messages `started`, `output`, `exit` and `error`",
        "content": {"text/event-stream": {}, "application/x-ndjson": {}},
    }
}


@router.post("/exec")
async def execute(
    given: Given, who: Who, *, calling: Calling, key: Key, sandbox: str, wanted: ExecRequest
) -> ExecResult:
    """Run a command to its end. It ends with the connection, and at its deadline with 124.

    With an `Idempotency-Key` it is run once for all who ask with that key, and they get the same
    answer. So that they can ask again, it then goes on when the connection ends; its record stays
    until it is forgotten under `/commands`."""
    command, most = wanted.command(), wanted.max_output_bytes
    if key:
        result = await given.commands.run_once(who, sandbox, command, key=key, max_output=most)
    else:
        result = await calling.attend(given.commands.run(who, sandbox, command, most))
    return show_result(result, wanted.encoding)


@router.post("/exec/stream", response_class=StreamingResponse, responses=_STREAMS)
async def stream(
    request: Request,
    given: Given,
    who: Who,
    *,
    calling: Calling,
    key: Key,
    sandbox: str,
    wanted: StartCommand,
    form: Annotated[Format, Query(alias="format")] = Format.SSE,
) -> StreamingResponse:
    """Start a command and follow it. It goes on when the connection ends: the first message has
    its id, with which `/commands/{id}/output` goes on from any offset."""
    starting = given.commands.start(who, sandbox, wanted.command(), wanted.background(key))
    begun = await calling.attend(streams.begun(starting))

    async def body() -> AsyncIterator[bytes]:
        # Somebody may have to approve it first; what goes wrong then is the last message.
        async for sign in streams.waited_for(begun, form):
            yield sign
        command_id, run = begun.result()
        yield streams.frame(form, "started", {"id": command_id, "pid": run.pid})
        place = (sandbox, command_id)
        async for part in _output(given, who, place, form=form, offsets={}, known=run):
            yield part

    staying = given.access.stays.stay(who)
    return streams.response(body(), form, request_id=request_id(request), staying=staying)


@router.post("/commands", status_code=201)
async def start(
    given: Given, who: Who, *, calling: Calling, key: Key, sandbox: str, wanted: StartCommand
) -> CommandShape:
    """Start a command that goes on by itself. An `Idempotency-Key` that looks like a command's id
    becomes its id."""
    starting = given.commands.start(who, sandbox, wanted.command(), wanted.background(key))
    # With a key it can be asked for again, and is not given up.
    _, run = await (starting if key else calling.attend(starting))
    return show_command(run)


@router.get("/commands")
async def list_commands(given: Given, who: Who, sandbox: str, page: _Page) -> ListOf[CommandShape]:
    """Those that run, and those that ended and were not forgotten; the oldest first."""
    runs = await given.commands.list(who, sandbox)
    return page_of(runs, page, show_command, lambda run: f"{run.started_at:017.6f}:{run.key}")


@router.get("/commands/{command}")
async def get(given: Given, who: Who, sandbox: str, command: str) -> CommandShape:
    """One command."""
    return show_command(await given.commands.get(who, sandbox, command))


@router.get("/commands/{command}/output", response_class=StreamingResponse, responses=_STREAMS)
async def output(
    request: Request,
    given: Given,
    who: Who,
    *,
    sandbox: str,
    command: str,
    form: Annotated[Format, Query(alias="format")] = Format.SSE,
    cursor: Annotated[str, Query(max_length=200, description="such as `stdout:120`")] = "",
    last_event_id: Annotated[str, Header(max_length=200)] = "",
    follow: Annotated[bool, Query(description="wait for more until it ends")] = True,
) -> StreamingResponse:
    """Its output from a cursor on; `Last-Event-ID` resumes."""
    known = await given.commands.get(who, sandbox, command)
    offsets = streams.offsets_of(last_event_id or cursor)
    streams.check_within(offsets, known)
    place = (sandbox, command)
    body = _output(given, who, place, form=form, offsets=offsets, follow=follow, known=known)
    staying = given.access.stays.stay(who)
    return streams.response(body, form, request_id=request_id(request), staying=staying)


@router.post("/commands/{command}/input", status_code=204)
async def send_input(
    given: Given, who: Who, *, sandbox: str, command: str, wanted: Input
) -> Response:
    """Write to its standard input, or close it."""
    data = wanted.read()
    if data or not wanted.close:
        await given.commands.send_input(who, sandbox, command, data)
    if wanted.close:
        await given.commands.close_input(who, sandbox, command)
    return Response(status_code=204)


@router.post("/commands/{command}/signal", status_code=204)
async def signal(given: Given, who: Who, *, sandbox: str, command: str, wanted: Signal) -> Response:
    """Send a signal."""
    await given.commands.signal(who, sandbox, command, wanted.signal)
    return Response(status_code=204)


@router.post("/commands/{command}/resize", status_code=204)
async def resize(given: Given, who: Who, *, sandbox: str, command: str, wanted: Resize) -> Response:
    """Change the size of its terminal."""
    await given.commands.resize(who, sandbox, command, (wanted.columns, wanted.rows))
    return Response(status_code=204)


@router.post("/commands/{command}/kill", status_code=202)
async def kill(
    given: Given,
    who: Who,
    *,
    sandbox: str,
    command: str,
    grace_s: Annotated[float, Query(ge=0, le=60)] = 5.0,
) -> CommandShape:
    """End it with everything it started: SIGTERM, and SIGKILL after the grace."""
    await given.commands.end(who, sandbox, command, grace_s)
    return show_command(await given.commands.get(who, sandbox, command))


@router.delete("/commands/{command}", status_code=204)
async def forget(given: Given, who: Who, sandbox: str, command: str) -> Response:
    """Let go of an ended command's output."""
    await given.commands.forget(who, sandbox, command)
    return Response(status_code=204)


def _output(
    given: Services,
    who: Principal,
    place: tuple[str, str],
    *,
    form: Format,
    offsets: dict[str, int],
    follow: bool = True,
    known: Run | None = None,
) -> AsyncIterator[bytes]:
    pieces = given.commands.follow(who, *place, dict(offsets), follow=follow, known=known)
    return streams.of_output(pieces, form, offsets)
