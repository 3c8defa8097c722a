"""/files of envd: download and upload."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import AsyncIterator, Awaitable
from typing import Callable

from . import multipart, paths, rights
from .body import Disconnected
from .connect import Call, Message, dump
from .environment import decode
from .errors import GuestError, from_os_error, invalid
from .http import Exchange
from .query import parse_query
from .state import GuestState
from .upload import Upload
from .users import Account

_CHUNK = 256 << 10
_UNSIZED = 4 << 20
_JSON = ("content-type", "application/json")
_BINARY = ("content-type", "application/octet-stream")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_METADATA_HEADER = "x-metadata-"

Read = Callable[[], Awaitable[bytes]]


def methods(state: GuestState) -> dict[str, Callable[[Call], Awaitable[None]]]:
    return {
        "GET /files": _answering(download),
        "HEAD /files": _answering(download),
        "POST /files": _answering(upload),
    }


async def download(call: Call) -> None:
    query = parse_query(call.exchange.query)
    account = _account(call, query)
    path = call.state.absolute(query.get("path", ""), account)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    fd = rights.attempt(call.file_accounts(account), lambda _: paths.open_path(path, flags))
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise invalid(f"path '{decode(path)}' is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise invalid(f"path '{decode(path)}' is not a regular file")
        if status.st_size == 0:
            # A file of /proc has no size and yet content.
            call.exchange.respond(200, _read_unsized(fd), _BINARY, ("accept-ranges", "bytes"))
            return
        await _send(call.exchange, fd, status)
    finally:
        os.close(fd)


async def upload(call: Call) -> None:
    exchange = call.exchange
    query = parse_query(exchange.query)
    account = _account(call, query)
    kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    read = _decoded(exchange)
    taken: list[Message] = []
    if kind == "multipart/form-data":
        form = multipart.Form(exchange.headers["content-type"], read)
        async for part in form.parts():
            if part.name == "file":
                name = _part_path(query, part, taken)
                taken.append(
                    await _store(call, call.state.absolute(name, account), account, part.read)
                )
    elif kind == "application/octet-stream":
        if not query.get("path"):
            raise invalid("an octet-stream upload needs the path in the query")
        taken.append(await _store(call, call.state.absolute(query["path"], account), account, read))
    else:
        raise invalid(f"content type {kind!r} is neither multipart/form-data nor octet-stream")
    exchange.respond(200, dump(taken), _JSON)


async def _store(call: Call, path: bytes, account: Account, read: Read) -> Message:
    if path.endswith(b"/"):
        raise invalid(f"path is a directory: {decode(path)}")
    target = Upload(path, call.file_accounts(account), _metadata(call.exchange))
    try:
        while True:
            data = await read()
            if not data:
                return await target.finish()
            target.write(data)
    except OSError as error:
        target.abandon()
        error.filename = path  # and not the part of it that was being looked at
        raise
    except BaseException:
        target.abandon()
        raise


def _answering(method: Callable[[Call], Awaitable[None]]) -> Callable[[Call], Awaitable[None]]:
    """Errors in envd's form for plain routes: the status again in the body."""

    async def handle(call: Call) -> None:
        try:
            await method(call)
        except GuestError as error:
            _refuse(call.exchange, error.status, error.message)
        except OSError as error:
            known = from_os_error(error, os.fsdecode(error.filename or "the file"))
            status = 507 if error.errno in _NO_SPACE else known.status
            _refuse(call.exchange, status, known.message)

    return handle


def _refuse(exchange: Exchange, status: int, message: str) -> None:
    if exchange.responding:
        exchange.abort()
        return
    exchange.respond(status, dump({"code": status, "message": message}), _JSON)


def _account(call: Call, query: dict[str, str]) -> Account:
    name = query.get("username", "")
    try:
        return call.state.account(name)
    except GuestError:
        raise GuestError(
            "unauthenticated", f"error looking up user '{name}': user: unknown user {name}"
        ) from None


def _part_path(query: dict[str, str], part: multipart.Part, taken: list[Message]) -> str:
    if query.get("path"):
        if taken:
            raise invalid("several files were sent, but the path in the query names only one")
        return query["path"]
    if not part.filename:
        raise invalid("a part has no file name, and there is no path in the query")
    return part.filename


def _metadata(exchange: Exchange) -> dict[str, str]:
    found = {
        name[len(_METADATA_HEADER) :]: value.encode("latin-1").decode("utf-8", "surrogateescape")
        for name, value in exchange.headers.items()
        if name.startswith(_METADATA_HEADER)
    }
    found.pop("", None)
    return found


def _decoded(exchange: Exchange) -> Read:
    """The body as the sender had it before it was compressed for the way."""
    encoding = exchange.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return exchange.read
    if encoding != "gzip":
        raise invalid(f"content encoding {encoding!r} is not supported; gzip is")
    pieces = _gunzip(exchange.read)

    async def read() -> bytes:
        async for piece in pieces:
            return piece
        return b""

    return read


async def _gunzip(read: Read) -> AsyncIterator[bytes]:
    """Piece by piece and never more than one at a time, however well it was compressed."""
    inflate = zlib.decompressobj(wbits=31)
    try:
        while True:
            data = await read()
            if not data:
                break
            while data:
                if inflate.eof:
                    inflate = zlib.decompressobj(wbits=31)
                piece = inflate.decompress(data, _CHUNK)
                data = inflate.unconsumed_tail or inflate.unused_data
                if piece:
                    yield piece
    except zlib.error as error:
        raise invalid(f"the body is not gzip: {error}") from None
    if not inflate.eof:
        raise invalid("the gzip body ended too early")


async def _send(exchange: Exchange, fd: int, status: os.stat_result) -> None:
    size, tag = status.st_size, _tag(status)
    # Who goes on with what they have of another version gets all of this one.
    same = exchange.headers.get("if-range", tag) == tag
    wanted = _parse_range(exchange.headers.get("range", "") if same else "", size)
    if wanted is None:
        exchange.respond(416, b"", ("content-range", f"bytes */{size}"))
        return
    first, last = wanted
    headers = [_BINARY, ("accept-ranges", "bytes"), ("content-length", str(last - first + 1))]
    headers.append(("etag", tag))
    partial = (first, last) != (0, size - 1)
    if partial:
        headers.append(("content-range", f"bytes {first}-{last}/{size}"))
    exchange.start_response(206 if partial else 200, *headers)
    while exchange.method != "HEAD" and first <= last:
        data = os.pread(fd, min(_CHUNK, last - first + 1), first)
        if not data:
            raise Disconnected  # it shrank: break off, as the promised length cannot be kept
        first += len(data)
        exchange.write(data)
        await exchange.drain()
    exchange.end_response()


def _tag(status: os.stat_result) -> str:
    """Another one after every change of the content, also one that keeps size and time."""
    return f'"{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ctime_ns:x}"'


def _parse_range(header: str, size: int) -> tuple[int, int] | None:
    """First and last byte. The whole file for no range or one not understood; None past the end."""
    unit, _, spec = header.partition("=")
    first, dash, last = spec.strip().partition("-")
    if unit.strip() != "bytes" or not dash or "," in spec:
        return 0, size - 1
    if not (first or last) or any(text and not text.isdigit() for text in (first, last)):
        return 0, size - 1
    if not first:
        return (max(0, size - int(last)), size - 1) if int(last) else None
    if int(first) >= size or (last and int(last) < int(first)):
        return None
    return int(first), min(int(last), size - 1) if last else size - 1


def _read_unsized(fd: int) -> bytes:
    pieces, size = [], 0
    while size < _UNSIZED:
        data = os.read(fd, _CHUNK)
        if not data:
            break
        pieces.append(data)
        size += len(data)
    return b"".join(pieces)
