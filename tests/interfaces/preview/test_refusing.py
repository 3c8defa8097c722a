"""What could be read in two ways is refused, before anything of it reaches an upstream."""

import asyncio
import socket
import struct

import h11
import pytest

from tests.interfaces.preview.running import (
    HOST,
    OK,
    answering,
    connected,
    fetch,
    get,
    scripted,
    to_port,
)

H = f"Host: {HOST}\r\n".encode()
LINE = b"POST / HTTP/1.1\r\n" + H

SMUGGLED = {
    "length and chunks": LINE + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks and length": LINE + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
    "two lengths": LINE + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n",
    "list of lengths": LINE + b"Content-Length: 4, 5\r\n\r\n",
    "signed length": LINE + b"Content-Length: +4\r\n\r\n",
    "negative length": LINE + b"Content-Length: -4\r\n\r\n",
    "hexadecimal length": LINE + b"Content-Length: 0x4\r\n\r\n",
    "empty length": LINE + b"Content-Length:\r\n\r\n",
    "huge length": LINE + b"Content-Length: 99999999999999999999\r\n\r\n",
    "length with underscore": LINE + b"Content-Length: 1_0\r\n\r\n",
    "folded header": LINE + b"X: a\r\n b\r\n\r\n",
    "folded chunks": LINE + b"Transfer-Encoding:\r\n chunked\r\n\r\n",
    "space before colon": LINE + b"Content-Length : 4\r\n\r\n",
    "tab before colon": LINE + b"Transfer-Encoding\t: chunked\r\n\r\n",
    "space before name": b"POST / HTTP/1.1\r\n X: y\r\n" + H + b"\r\n",
    "other coding": LINE + b"Transfer-Encoding: gzip\r\n\r\n",
    "two codings": LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "chunks twice": LINE + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "identity and chunks": LINE
    + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n",
    "odd chunked": LINE + b"Transfer-Encoding: xchunked\r\n\r\n",
    "chunked with parameter": LINE + b"Transfer-Encoding: chunked;a=b\r\n\r\n",
    "chunked with tab": LINE + b"Transfer-Encoding: \x0bchunked\r\n\r\n",
    "chunks from an old client": b"POST / HTTP/1.0\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\n" + H + b"\r\n",
    "bare LF between headers": b"GET / HTTP/1.1\r\nX: y\n" + H + b"\r\n",
    "bare LF everywhere": get().replace(b"\r\n", b"\n"),
    "bare CR": LINE + b"X: a\rY: b\r\n\r\n",
    "zero byte": LINE + b"X: a\0b\r\n\r\n",
    "control byte in name": LINE + b"X\x01: y\r\n\r\n",
    "no colon": LINE + b"nothing\r\n\r\n",
    "empty name": LINE + b": x\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\nX: y\r\n\r\n",
    "no host, old": b"GET / HTTP/1.0\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\n" + H + H + b"\r\n",
    "empty host": b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    "host with a path": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "host with a user": b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
    "host with a space": b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "host with a port too large": b"GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n",
    "other host in URL": b"GET http://other.test/ HTTP/1.1\r\n" + H + b"\r\n",
    "other port in URL": f"GET http://{HOST}:81/ HTTP/1.1\r\n".encode() + H + b"\r\n",
    "user in URL": f"GET http://u@{HOST}/ HTTP/1.1\r\n".encode() + H + b"\r\n",
    "other scheme in URL": f"GET ftp://{HOST}/ HTTP/1.1\r\n".encode() + H + b"\r\n",
    "target without slash": b"GET x HTTP/1.1\r\n" + H + b"\r\n",
    "target with fragment": b"GET * HTTP/1.1\r\n" + H + b"\r\n",
    "two spaces": b"GET  / HTTP/1.1\r\n" + H + b"\r\n",
    "space at the end": b"GET / HTTP/1.1 \r\n" + H + b"\r\n",
    "tab in the line": b"GET\t/\tHTTP/1.1\r\n" + H + b"\r\n",
    "control byte in target": b"GET /\x01 HTTP/1.1\r\n" + H + b"\r\n",
    "HTTP/0.9": b"GET /\r\n" + H + b"\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\n" + H + b"\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\n" + H + b"\r\n",
    "another protocol": b"GET / ICE/1.0\r\n" + H + b"\r\n",
    "lower-case method": b"get / HTTP/1.1\r\n" + H + b"\r\n",
    "unknown method": b"FETCH / HTTP/1.1\r\n" + H + b"\r\n",
    "garbage": b"\x00\x01\x02\x03",
}


@pytest.mark.parametrize("name", SMUGGLED)
async def test_an_ambiguous_request_gets_400_and_the_connection_is_closed(serve, name):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(SMUGGLED[name] + b"0\r\n\r\n" + get("/smuggled"))
            got = await client.answer()
            assert await client.rest() == b""
    assert got.status == 400
    assert got.get("connection") == "close"
    assert b'"malformed_request"' in got.body
    assert upstream.requests == []
    assert front.counts.malformed == 1


async def test_connect_is_not_offered(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        got = await fetch(front.port, b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n")
    assert got.status == 405
    assert upstream.connections == 0


@pytest.mark.parametrize("body", [b"zz\r\n", b"5\r\nhello!\r\n", b"5\nhello\n", b"-5\r\nhello\r\n"])
async def test_a_bad_chunk_ends_the_request_on_both_sides(serve, body):
    ended = asyncio.Event()

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await reader.read()
        ended.set()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(LINE + b"Transfer-Encoding: chunked\r\n\r\n", body + get("/smuggled"))
            got = await client.answer()
            assert await client.rest() == b""
        async with asyncio.timeout(3):
            await ended.wait()
    assert got.status == 400
    assert front.counts.requests == 1


@pytest.mark.parametrize(
    ("hello", "word"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"TLS"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", b"HTTP/2"),
    ],
)
async def test_other_protocols_are_told_what_is_spoken_here(serve, hello, word):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        got = await fetch(front.port, hello)
    assert got.status == 400
    assert word in got.body
    assert upstream.connections == 0


async def test_an_empty_line_before_a_request_is_overlooked(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            for before in (b"\r\n", b"\r\n\r\n"):
                await client.send(before, get())
                assert (await client.answer()).status == 200
                await client.send(before + get())
                assert (await client.answer()).status == 200


GARBLED = [
    b"not HTTP at all\r\n\r\n",
    b"HTTP/2 200 OK\r\n\r\n",
    b"HTTP/1.1 099 Low\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000,
    b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\n\r\n",
]


@pytest.mark.parametrize("answer", GARBLED)
async def test_an_upstream_that_does_not_speak_http_gives_502(serve, answer):
    async with answering(answer) as upstream:
        front = serve(to_port(upstream.port))
        got = await fetch(front.port, get())
    assert got.status == 502
    assert b'"bad_gateway"' in got.body
    assert front.counts.failed == 1


@pytest.mark.parametrize(
    ("head", "end"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"zz\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", b""),
    ],
)
async def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(serve, head, end):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        await asyncio.sleep(0.1)
        writer.write(end)

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            with pytest.raises(h11.RemoteProtocolError, match="without sending complete"):
                await client.answer()


async def test_an_answer_without_a_frame_that_breaks_off_ends_with_a_reset(serve):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await asyncio.sleep(0.1)
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            await client.reader.readuntil(b"hello")
            with pytest.raises(ConnectionResetError):
                await client.reader.read()


async def test_bytes_after_an_answer_never_become_the_next_one(serve):
    stray = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
    async with answering(OK + stray, OK) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            assert (await client.answer()).body == b"ok"
            await client.send(get())
            assert (await client.answer()).body == b"ok"
    assert upstream.connections == 2


async def test_bytes_on_an_idle_upstream_close_it(serve):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await asyncio.sleep(0.1)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray")
        await reader.read()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            assert (await client.answer()).body == b"ok"
            await asyncio.sleep(0.3)
            await client.send(get())
            assert (await client.answer()).body == b"ok"
    assert upstream.connections == 2
