"""Streams as text: one encoder for events, one for a command's output, in SSE or NDJSON."""

import asyncio
import base64
import codecs
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import AbstractContextManager, suppress
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from fastapi.responses import StreamingResponse

from paddock.domain.errors import InvalidRequest, PaddockError
from paddock.domain.event import Event
from paddock.guest_client.runs import Run, RunExit
from paddock.interfaces.api.schemas.common import at
from paddock.services.commands import Piece
from paddock.services.following import Step
from paddock.services.stays import Stay

T = TypeVar("T")
_HEARTBEAT_S = 15.0
_STREAMS = ("stdout", "stderr", "pty")
_OFFSET = re.compile("[0-9]{1,18}")
_encoder = msgspec.json.Encoder()


class Format(StrEnum):
    """How a stream is written."""

    SSE = "sse"
    NDJSON = "ndjson"

    @property
    def media_type(self) -> str:
        return "text/event-stream" if self is Format.SSE else "application/x-ndjson"


def frame(form: Format, kind: str, data: Mapping[str, Any], cursor: str = "") -> bytes:
    """One message of a stream."""
    if form is Format.NDJSON:
        return _encoded({"type": kind, **data}) + b"\n"
    place = f"id: {cursor}\n".encode() if cursor else b""
    return b"event: %b\n%bdata: %b\n\n" % (kind.encode(), place, _encoded(data))


def _encoded(data: Mapping[str, Any]) -> bytes:
    try:
        return _encoder.encode(data)
    except UnicodeEncodeError:
        # A name that is no UTF-8: only escapes can say it.
        return json.dumps(data, separators=(",", ":")).encode("ascii")


PLACE = "x-paddock-place"
"""The header that says after which event a stream begins."""


async def of_events(events: AsyncIterator[Event], form: Format, place: int) -> AsyncIterator[bytes]:
    """The events after a place. Who breaks off before the first of them resumes from the place."""
    if form is Format.SSE:
        yield b"id: %d\n\n" % place
    async for item in with_heartbeat(events):
        yield beat(form) if item is None else frame(form, item.kind, _event(item), str(item.seq))


def _event(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "kind": event.kind,
        "subject": event.subject,
        "at": _at(event.at),
        "actor": event.actor,
        "data": event.data,
    }


def _at(seconds: float) -> str:
    """As the lists have it."""
    return at(seconds).isoformat().replace("+00:00", "Z")


def beat(form: Format) -> bytes:
    """Something that means nothing, so that proxies keep the connection open."""
    return b": still here\n\n" if form is Format.SSE else b"\n"


async def progress(
    steps: AsyncIterator[Step | None], form: Format, last: tuple[str, Mapping[str, Any]]
) -> AsyncIterator[bytes]:
    """How a long piece of work goes, and at last what came of it."""
    async for step in steps:
        if step is None:
            yield beat(form)
        else:
            yield frame(form, "progress", {"text": step.text, "fraction": step.fraction})
    yield frame(form, *last)


async def with_heartbeat(source: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The same, with None whenever nothing came for a while."""
    pending: asyncio.Task[Any] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(source))
            done, _ = await asyncio.wait({pending}, timeout=_HEARTBEAT_S)
            if not done:
                yield None
                continue
            finished, pending = pending, None
            try:
                yield finished.result()
            except StopAsyncIteration:
                return
    finally:
        if pending is not None:
            pending.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration, PaddockError):
                await pending


async def begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """What is to be streamed: it is there, or takes so long that the stream begins without it."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=_HEARTBEAT_S)
    except BaseException:
        task.cancel()
        raise
    if task.done():
        task.result()
    return task


async def waited_for(task: asyncio.Task[Any], form: Format) -> AsyncIterator[bytes]:
    """Signs of life until it is there. Who waits for it no more ends it."""
    try:
        while not task.done():
            yield beat(form)
            await asyncio.wait({task}, timeout=_HEARTBEAT_S)
    finally:
        task.cancel()


class _Cutter:
    """Output of one stream as text where it is text: never cut inside a character."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._held = b""
        self.offset = 0

    def cut(self, data: bytes, *, last: bool = False) -> dict[str, Any]:
        """What can be told now; empty when all of it has to wait for the rest of a character."""
        whole, start = self._held + data, self.offset
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            shown = {"data": decoder.decode(whole, final=last)}
            self._held = decoder.getstate()[0]
        except UnicodeDecodeError:
            shown = {"data_base64": base64.b64encode(whole).decode()}
            self._held = b""
        self.offset += len(whole) - len(self._held)
        if self.offset == start:
            return {}
        return {"stream": self._stream, "offset": start, **shown}

    def skip_to(self, offset: int) -> None:
        self.offset = offset - len(self._held)


async def of_output(
    pieces: AsyncIterator[Piece | RunExit], form: Format, offsets: dict[str, int]
) -> AsyncIterator[bytes]:
    """A command's output and how it ended; the cursor says how far each stream was told."""
    told = _Told(form, offsets)
    async for item in with_heartbeat(pieces):
        if item is None:
            yield beat(form)
        elif isinstance(item, Piece):
            yield told.piece(item)
        else:
            yield told.end(item)


class _Told:
    """What a reader was told of a command's output."""

    def __init__(self, form: Format, offsets: dict[str, int]) -> None:
        self._form = form
        self._offsets = offsets
        self._cutters: dict[str, _Cutter] = {}

    def piece(self, piece: Piece) -> bytes:
        cutter = self._cutters.setdefault(piece.stream, _Cutter(piece.stream))
        cutter.skip_to(piece.offset)
        shown = cutter.cut(piece.data)
        if piece.lost:
            shown = {"stream": piece.stream, "offset": piece.offset, "data": "", **shown}
            shown["lost_bytes"] = piece.lost
        return self._output(cutter, shown)

    def end(self, ended: RunExit) -> bytes:
        rest = [self._output(each, each.cut(b"", last=True)) for each in self._cutters.values()]
        data = {
            "exit_code": ended.exit_code,
            "reason": ended.reason,
            "cpu_seconds": ended.cpu_seconds,
            "max_rss_bytes": ended.max_rss_bytes,
            "seconds": round(ended.ended_at - ended.started_at, 6),
        }
        return b"".join(rest) + frame(self._form, "exit", data, cursor_of(self._offsets))

    def _output(self, cutter: _Cutter, shown: dict[str, Any]) -> bytes:
        if not shown:
            return b""
        self._offsets[shown["stream"]] = cutter.offset
        return frame(self._form, "output", shown, cursor_of(self._offsets))


def cursor_of(offsets: Mapping[str, int]) -> str:
    return ",".join(f"{stream}:{offset}" for stream, offset in sorted(offsets.items()))


def offsets_of(cursor: str) -> dict[str, int]:
    """The offsets that a cursor stands for; none is the beginning of each stream."""
    offsets = {}
    for part in filter(None, cursor.split(",")):
        stream, _, offset = part.partition(":")
        if stream not in _STREAMS or not _OFFSET.fullmatch(offset):
            raise InvalidRequest(
                f"{part[:40]!r} is no place in a command's output",
                remediation=f"write it as STREAM:BYTES, of {', '.join(_STREAMS)}: `stdout:120`",
            )
        offsets[stream] = int(offset)
    return offsets


def check_within(offsets: Mapping[str, int], run: Run) -> None:
    """A place beyond the end, or in a stream that there is none of, was never told by us."""
    for stream, offset in offsets.items():
        if stream not in run.streams:
            raise InvalidRequest(
                f"command {run.key} has no {stream}",
                remediation=f"it has {', '.join(sorted(run.streams))}",
            )
        if offset > (end := run.streams[stream].end):
            raise InvalidRequest(
                f"{stream} of command {run.key} ends at {end}, before {offset}",
                remediation="go on from the cursor of the last message, or from none",
            )


def response(
    body: AsyncIterator[bytes],
    form: Format,
    *,
    request_id: str,
    staying: AbstractContextManager[Stay],
    place: int | None = None,
) -> StreamingResponse:
    """A stream as an answer that no proxy holds back, for as long as its reader may be here."""
    begins = {} if place is None else {PLACE: str(place)}
    return StreamingResponse(
        told(attended(body, staying), form, request_id=request_id),
        media_type=form.media_type,
        headers={"cache-control": "no-store", "x-accel-buffering": "no", **begins},
    )


async def attended(
    body: AsyncIterator[bytes], staying: AbstractContextManager[Stay]
) -> AsyncIterator[bytes]:
    """The same, broken off when its reader may not be here any more."""
    try:
        with staying as stay:
            while (part := await _next(body, stay)) is not None:
                yield part
    finally:
        if isinstance(body, AsyncGenerator):
            await body.aclose()


async def _next(body: AsyncIterator[bytes], stay: Stay) -> bytes | None:
    with stay.attending():
        return await anext(body, None)


async def told(
    body: AsyncIterator[bytes], form: Format, *, request_id: str
) -> AsyncIterator[bytes]:
    """An error in the middle of a stream becomes its last message."""
    try:
        async for part in body:
            yield part
    except PaddockError as error:
        yield frame(form, "error", {**error.as_dict(), "request_id": request_id})
