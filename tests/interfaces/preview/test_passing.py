"""Requests and answers go through as they are, whatever their framing."""

import asyncio

import pytest

from paddock.interfaces.preview import Reply
from tests.interfaces.preview.running import (
    HOST,
    OK,
    answering,
    connected,
    fetch,
    get,
    post,
    scripted,
    to_port,
)


async def test_a_request_and_its_answer_keep_their_headers_order_and_case(serve):
    fields = b"X-One: 1\r\nx-TWO: a, b\r\nX-One: 3\r\nContent-Length: 2\r\n\r\nok"
    answer = b"HTTP/1.1 299 Rather Good\r\n" + fields
    async with answering(answer) as upstream:
        front = serve(to_port(upstream.port))
        got = await fetch(front.port, get("/a/b?c=%20d", "X-Mixed-Case: v", "x-mixed-case: w"))
    assert (got.status, got.reason, got.body) == (299, "Rather Good", b"ok")
    assert got.headers[:3] == [("X-One", "1"), ("x-TWO", "a, b"), ("X-One", "3")]
    lines = upstream.requests[0].split(b"\r\n")
    assert lines[0] == b"GET /a/b?c=%20d HTTP/1.1"
    assert lines[1:4] == [f"Host: {HOST}".encode(), b"X-Mixed-Case: v", b"x-mixed-case: w"]


async def test_one_connection_serves_many_requests_over_one_upstream_connection(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            for number in range(5):
                await client.send(get(f"/{number}"))
                assert (await client.answer()).body == b"ok"
    assert upstream.connections == 1
    assert front.counts.connections == 1
    assert (front.counts.dialled, front.counts.reused) == (1, 4)


async def test_pipelined_requests_are_answered_in_order_one_at_a_time(serve):
    under_way = 0

    async def handle(reader, writer):
        nonlocal under_way
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            under_way += 1
            assert under_way == 1
            target = head.split()[1]
            await asyncio.sleep(0.02 if target == b"/0" else 0)
            under_way -= 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(target), target))

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(b"".join(get(f"/{number}") for number in range(50)))
            for number in range(50):
                assert (await client.answer()).body == b"/%d" % number
    assert upstream.connections == 1


async def test_thousands_of_pipelined_requests_need_no_deep_stack(serve):
    front = serve(lambda _: Reply(200, (), b"x"))
    async with connected(front.port) as client:
        await client.send(get() * 3000)
        for _ in range(3000):
            assert (await client.answer()).body == b"x"


async def test_a_pipelined_request_may_follow_a_body_of_either_framing(serve):
    async def handle(reader, writer):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"chunked" in head.lower():
                await reader.readuntil(b"0\r\n\r\n")
            elif b"Content-Length" in head:
                await reader.readexactly(5)
            writer.write(OK)

    chunked = get("/", "Transfer-Encoding: chunked").replace(b"GET", b"POST")
    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(
                post(b"hello") + chunked + b"3\r\nabc\r\n0\r\n\r\n" + post(b"hello") + get("/")
            )
            for _ in range(4):
                assert (await client.answer()).status == 200
    assert front.counts.requests == 4


async def test_a_chunked_body_arrives_byte_by_byte_with_its_trailers(serve):
    body = b"5;name=value\r\nhello\r\n1\r\n!\r\n0\r\nX-Check: abc\r\n\r\n"
    seen = b""

    async def handle(reader, writer):
        nonlocal seen
        await reader.readuntil(b"\r\n\r\n")
        seen = await reader.readexactly(len(body))
        writer.write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Check\r\n\r\n" + body
        )
        await writer.drain()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        request = get("/", "Transfer-Encoding: chunked", "Trailer: X-Check").replace(
            b"GET", b"POST"
        )
        got = await fetch(front.port, request + body, "POST")
    assert seen == body
    assert got.body == b"hello!"
    assert got.get("trailer") == "X-Check"
    assert got.trailers == [("x-check", "abc")]


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\nETag: x\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("GET", b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        # Apache says on plain answers that it could do more.
        (
            "GET",
            b"HTTP/1.1 200 OK\r\nUpgrade: h2\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nok",
        ),
    ],
)
async def test_an_answer_ends_where_its_kind_says_and_the_connection_goes_on(serve, method, answer):
    async with answering(answer, OK) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get().replace(b"GET", method.encode()))
            first = await client.answer(method)
            await client.send(get())
            assert (await client.answer()).body == b"ok"
    assert first.status == int(answer.split()[1])
    assert upstream.connections == 1


async def test_an_answer_that_ends_with_the_connection_ends_the_client_s_too(serve):
    async with answering(b"HTTP/1.0 200 OK\r\nX: y\r\n\r\nall of it", close=True) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            got = await client.answer()
            assert await client.rest() == b""
    assert got.body == b"all of it"
    assert got.get("connection") == "close"
    assert got.version == "1.1"
