"""One look at a port of a sandbox: a plain GET, of which little is read and nothing followed."""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

_MOST_BYTES = 64 << 10
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: |\r?\n)")
_CHUNKED = re.compile(rb"\r?\ntransfer-encoding:[ \t]*chunked[ \t]*\r?\n", re.I)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_BODY_S = 2.0

Connect = Callable[[int], Awaitable[socket.socket]]


class NoAnswer(Exception):
    """Nobody is there, or not yet, or they do not speak HTTP."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered."""

    status: int
    body: bytes = b""
    """Of errors only, and only its beginning."""
    is_cut: bool = False


async def get(connect: Connect, port: int, path: str, timeout_s: float) -> Answer:
    """NoAnswer says why there is none."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _get(await connect(port), port, path)
    except ConnectionRefusedError as error:
        raise NoAnswer("nothing listens there") from error
    except TimeoutError as error:
        raise NoAnswer(f"{path} gave no answer in {timeout_s:.0f} s") from error
    except OSError as error:
        raise NoAnswer(f"it cannot be reached: {error.strerror or error}") from error


async def _get(connection: socket.socket, port: int, path: str) -> Answer:
    # Development servers answer to no other name than this, so that no page elsewhere asks them.
    head = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n"
    head += "Accept: */*\r\nUser-Agent: paddock\r\nConnection: close\r\n\r\n"
    try:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_MOST_BYTES)
    except BaseException:
        connection.close()
        raise
    try:
        writer.write(head.encode("ascii"))
        await writer.drain()
        return await _answer(reader)
    finally:
        writer.transport.abort()


async def _answer(reader: asyncio.StreamReader) -> Answer:
    status, head = 0, b""
    while status < 200:  # those before are no answer yet
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            why = "what it says is not HTTP" if error.partial else "it closed the connection"
            raise NoAnswer(why) from error
        except asyncio.LimitOverrunError as error:
            raise NoAnswer("what it says is not HTTP") from error
        found = _STATUS.match(head)
        if found is None or int(found[1]) == 101:
            raise NoAnswer("what it says is not HTTP")
        status = int(found[1])
    if status < 400:
        return Answer(status)
    body, is_cut = await _beginning(reader)
    return Answer(status, _without_sizes(body) if _CHUNKED.search(head) else body, is_cut)


async def _beginning(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    """As much as comes soon, and whether there may be more: some servers leave a connection open
    though they were asked not to."""
    held = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            while more := await reader.read(_MOST_BYTES - len(held)):
                held += more
    except (TimeoutError, OSError):
        return bytes(held), True
    return bytes(held), len(held) >= _MOST_BYTES


def _without_sizes(body: bytes) -> bytes:
    """The bytes of chunks, as far as they have come."""
    joined, at = bytearray(), 0
    while (size := _CHUNK.match(body, at)) is not None and int(size[1], 16):
        end = size.end() + int(size[1], 16)
        joined += body[size.end() : end]
        at = end + 2
    return bytes(joined)
