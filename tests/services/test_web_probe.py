"""One look at a port, whatever is behind it."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from paddock.services.web_probe import NoAnswer, get
from tests.harness.ports import free_port

pytestmark = pytest.mark.timeout(60)


@asynccontextmanager
async def saying(*pieces, stays=False):
    """A server that says this to whoever comes, and what it was asked."""
    asked, over = [], asyncio.Event()

    async def serve(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        for piece in pieces:
            writer.write(piece)
        await writer.drain()
        if stays:
            await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        try:
            yield server.sockets[0].getsockname()[1], asked
        finally:
            over.set()


async def connect(port):
    made = socket.socket()
    made.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    except OSError:
        made.close()
        raise
    return made


async def looked(*pieces, stays=False, timeout_s=10.0):
    async with saying(*pieces, stays=stays) as (port, _):
        return await get(connect, port, "/", timeout_s)


async def test_it_asks_for_a_page_by_a_name_that_development_servers_know():
    async with saying(b"HTTP/1.1 204 No Content\r\n\r\n") as (port, asked):
        assert (await get(connect, port, "/a?b=c", 10.0)).status == 204
    assert asked[0].startswith(b"GET /a?b=c HTTP/1.1\r\nHost: localhost:%d\r\n" % port)


async def test_what_is_no_answer_yet_is_passed_over():
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    assert (await looked(early, early, b"HTTP/1.1 200 OK\r\n\r\n")).status == 200


async def test_of_an_error_the_beginning_is_read_whoever_keeps_the_connection_open():
    head = b"HTTP/1.1 500 X\r\nContent-Length: 4\r\n\r\n"
    stays = await looked(head, b"boom", stays=True)
    assert (stays.status, stays.body, stays.is_cut) == (500, b"boom", True)
    chunked = (
        b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2;x=y\r\nom\r\n0\r\n\r\n"
    )
    assert (await looked(chunked)).body == b"boom"
    much = await looked(b"HTTP/1.0 503 X\r\n\r\n", b"x" * (1 << 20))
    assert (len(much.body), much.is_cut) == (64 << 10, True)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "closed the connection"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP"),
        (b"220 mail\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * (1 << 18), "not HTTP"),
    ],
)
async def test_who_does_not_speak_http_gives_no_answer(said, why):
    with pytest.raises(NoAnswer, match=why):
        await looked(said)


async def test_nobody_is_waited_for_longer_than_said():
    with pytest.raises(NoAnswer, match="no answer in 1 s"):
        await looked(stays=True, timeout_s=1.0)
    with pytest.raises(NoAnswer, match="nothing listens"):
        await get(connect, free_port(), "/", 10.0)
