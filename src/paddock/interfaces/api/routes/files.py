"""`/v1/sandboxes/{sandbox}/files` and `/archive`: what is on a sandbox's disk."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.requests import ClientDisconnect

from paddock.domain.errors import InvalidRequest
from paddock.guest_client.files import FileEvent, Walk
from paddock.interfaces.api import streams
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.errors import plain_body, request_id
from paddock.interfaces.api.schemas.common import ErrorBody
from paddock.interfaces.api.schemas.files import (
    MAX_LISTED,
    At,
    Closed,
    EntryShape,
    ListCursor,
    Listing,
    MakeDirectory,
    MoveFile,
    ReadAt,
    TextShape,
    Unpacked,
    WakingAt,
    answer,
    read_cursor,
    show_contents,
    show_entry,
    show_listing,
    show_sight,
    shown_names,
)
from paddock.interfaces.api.streams import Format
from paddock.services.archives import ArchiveFormat
from paddock.services.files import Place
from paddock.services.transfers import RangeNotSatisfiable, Span

router = APIRouter(prefix="/v1/sandboxes/{sandbox}", tags=["files"])
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {"description": "the content", "content": {"application/octet-stream": _BINARY}},
    206: {
        "description": "the part that `Range` asked for",
        "content": {"application/octet-stream": _BINARY},
    },
    416: {"description": "the range begins beyond the end", "model": ErrorBody},
}
_BODY = {
    "requestBody": {"required": True, "content": {"application/octet-stream": _BINARY}},
}
_TAR_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": _BINARY, "application/x-tar": _BINARY},
    },
}
_ARCHIVES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the archive",
        "content": {"application/x-tar": _BINARY, "application/zip": _BINARY},
    }
}
_CHANGES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "messages `watching`, `change` and `error`",
        "content": {"text/event-stream": {}, "application/x-ndjson": {}},
    }
}
_SAFE = {"x-content-type-options": "nosniff", "cache-control": "no-store"}


@router.get("/files", response_class=Response, responses=_CONTENT)
async def read(
    request: Request,
    given: Given,
    who: Who,
    *,
    at: ReadAt,
    span: Annotated[str, Header(alias="range", max_length=200)] = "",
    only_of: Annotated[str, Header(alias="if-range", max_length=200)] = "",
) -> Response:
    """A file's content, or the part of it that `Range` names; with `If-Range` only of the version
    that has this `ETag`, and of any other all of it."""
    try:
        found = await given.files.read(who, at, Span(span, only_of))
    except RangeNotSatisfiable as error:
        body = plain_body(request, "invalid_request", str(error), "ask for bytes within the file")
        headers = {"content-range": f"bytes */{error.size}"}
        return JSONResponse(body, 416, headers=headers)
    headers = {**_SAFE, "accept-ranges": "bytes", "content-disposition": "attachment"}
    headers |= show_sight(found.sight)
    if found.part.length is not None:
        headers["content-length"] = str(found.part.length)
    if found.part.content_range:
        headers["content-range"] = found.part.content_range
    if found.part.tag:
        headers["etag"] = found.part.tag
    return StreamingResponse(
        streams.attended(found.pieces, given.access.stays.stay(who)),
        206 if found.part.content_range else 200,
        media_type="application/octet-stream",
        headers=headers,
    )


@router.get("/files/text", response_model=TextShape)
async def read_text(given: Given, who: Who, at: ReadAt) -> Response:
    """A text file in JSON, up to the size that `files.max_text_kib` says; 413 beyond it."""
    found = await given.files.read_text(who, at)
    body = {**show_entry(found.entry), "text": found.text, "etag": found.tag or None}
    return answer(body, headers=show_sight(found.sight))


@router.put("/files", response_model=EntryShape, openapi_extra=_BODY)
async def write(request: Request, given: Given, who: Who, *, at: WakingAt) -> Response:
    """Write a file of any size; missing directories are made. It is whole or not there."""
    return answer(show_entry(await given.files.write(who, at, _body(request))))


@router.delete("/files", status_code=204)
async def remove(given: Given, who: Who, at: At) -> Response:
    """Remove a file, or a directory with everything in it. What is not there is no error."""
    await given.files.remove(who, at)
    return Response(status_code=204)


@router.get("/files/list", response_model=Listing)
async def list_files(
    given: Given,
    who: Who,
    *,
    at: ReadAt,
    depth: Annotated[int, Query(ge=1, le=1000)] = 1,
    closed: Closed = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED, description="at most so many")] = 1000,
    cursor: ListCursor = "",
) -> Response:
    """What is in a directory: sorted, each before its own children. Directories in `excluded` are
    listed but not entered."""
    walk = Walk(depth, after=read_cursor(cursor), limit=limit)
    found = await given.files.list(who, at, walk, closed)
    return answer(show_listing(found), headers=show_sight(found.sight))


@router.get("/files/stat", response_model=EntryShape)
async def stat(given: Given, who: Who, at: ReadAt) -> Response:
    """What is known of a file."""
    entry, sight = await given.files.stat(who, at)
    return answer(show_entry(entry), headers=show_sight(sight))


@router.post("/files/move", response_model=EntryShape)
async def move(given: Given, who: Who, sandbox: str, wanted: MoveFile) -> Response:
    """Move or rename; a file at the destination is replaced."""
    source = Place(sandbox, wanted.source, wanted.user)
    return answer(show_entry(await given.files.move(who, source, wanted.destination)))


@router.post("/files/directory", status_code=201, response_model=EntryShape)
async def make_directory(given: Given, who: Who, sandbox: str, wanted: MakeDirectory) -> Response:
    """Make a directory, and those above it."""
    wish = Place(sandbox, wanted.path, wanted.user)
    return answer(show_entry(await given.files.make_directory(who, wish)), 201)


@router.get("/files/watch", response_class=StreamingResponse, responses=_CHANGES)
async def watch(
    request: Request,
    given: Given,
    who: Who,
    *,
    at: At,
    recursive: Annotated[bool, Query(description="everything below it too")] = False,
    form: Annotated[Format, Query(alias="format")] = Format.SSE,
) -> StreamingResponse:
    """What changes in a directory from now on. When more happened than could be told, it ends
    with an error: list the directory, and watch again."""
    events = await given.files.watch(who, at, recursive=recursive)
    staying = given.access.stays.stay(who)
    return streams.response(
        _changes(events, form), form, request_id=request_id(request), staying=staying
    )


@router.get("/archive", response_class=StreamingResponse, responses=_ARCHIVES)
async def pack(
    given: Given,
    who: Who,
    *,
    at: WakingAt,
    form: Annotated[ArchiveFormat, Query(alias="format")] = ArchiveFormat.TAR,
    closed: Closed = None,
) -> StreamingResponse:
    """A directory's content, or one file, as an archive: a tar with everything, a zip without
    caches, unless `exclude` says otherwise; the header `X-Paddock-Excluded` shows what was left
    out. Links are in it as links. It breaks off where something could not be read, so that what
    ends well is whole."""
    without = given.archives.excluded(form, closed)
    pieces = await given.archives.pack(who, at, form, without)
    kind = "application/x-tar" if form is ArchiveFormat.TAR else "application/zip"
    headers = {**_SAFE, "content-disposition": f'attachment; filename="archive.{form}"'}
    headers["x-paddock-excluded"] = shown_names(without)
    body = streams.attended(pieces, given.access.stays.stay(who))
    return StreamingResponse(body, media_type=kind, headers=headers)


@router.put("/archive", openapi_extra=_TAR_BODY)
async def unpack(request: Request, given: Given, who: Who, *, at: WakingAt) -> Unpacked:
    """Unpack a tar or tar.gz in a directory, which is made if it is missing. Nothing is unpacked
    before all of it has come, and nothing at all when a name or a link leads outside."""
    return show_contents(await given.archives.unpack(who, at, _body(request)))


async def _body(request: Request) -> AsyncIterator[bytes]:
    """What is being sent; an error when it breaks off, so that nothing half sent is kept."""
    try:
        async for piece in request.stream():
            if piece:
                yield piece
    except ClientDisconnect:
        raise InvalidRequest("the upload broke off", remediation="send it again") from None


async def _changes(events: AsyncIterator[FileEvent], form: Format) -> AsyncIterator[bytes]:
    yield streams.frame(form, "watching", {})
    async for item in streams.with_heartbeat(events):
        if item is None:
            yield streams.beat(form)
        else:
            yield streams.frame(form, "change", {"name": item.name, "change": item.change})
