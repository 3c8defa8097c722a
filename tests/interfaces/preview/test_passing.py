"""Requests and answers go through as they are, whatever their framing."""

import asyncio
import socket

import pytest

from paddock.interfaces.preview import Edits, Reply, Upstream
from tests.interfaces.preview.running import (
    HOST,
    OK,
    answering,
    connected,
    dial_tcp,
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


async def test_100_continue_goes_back_before_the_body_is_sent(serve):
    async def handle(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Expect: 100-continue" in head
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(5)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + body)
        await writer.drain()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(post(b"hello", "Expect: 100-continue").removesuffix(b"hello"))
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(b"hello")
            assert (await client.answer("POST")).body == b"hello"


async def test_a_final_answer_instead_of_100_continue_comes_through_and_closes(serve):
    refusal = b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno"
    async with answering(refusal) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(post(b"x" * 9, "Expect: 100-continue").removesuffix(b"x" * 9))
            got = await client.answer("POST")
            assert await client.rest() == b""
    assert (got.status, got.body, got.get("connection")) == (417, b"no", "close")


async def test_early_hints_come_before_the_answer(serve):
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
    async with answering(hints + hints + OK) as upstream:
        front = serve(to_port(upstream.port))
        got = await fetch(front.port, get())
    assert [status for status, _ in got.interim] == [103, 103]
    assert got.interim[0][1] == [("link", "</a.css>; rel=preload")]
    assert got.body == b"ok"


async def test_an_old_client_gets_neither_chunks_nor_interim_answers(serve):
    answer = (
        b"HTTP/1.1 103 Early Hints\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    )
    async with answering(answer) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get().replace(b"HTTP/1.1", b"HTTP/1.0"))
            said = await client.rest()
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"chunked" not in head
    assert body == b"hello world"


async def test_an_old_client_may_keep_its_connection(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            for _ in range(2):
                await client.send(
                    get("/", "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0")
                )
                got = await client.answer()
                assert got.get("connection") == "keep-alive"


async def test_connection_close_is_obeyed(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get("/", "Connection: close"))
            got = await client.answer()
            assert await client.rest() == b""
    assert got.get("connection") == "close"


async def test_hop_by_hop_headers_stay_behind_in_both_directions(serve):
    answer = (
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Inner\r\nKeep-Alive: timeout=5\r\n"
        b"X-Inner: secret\r\nProxy-Authenticate: Basic\r\nX-Outer: o\r\nContent-Length: 2\r\n\r\nok"
    )
    sent = get(
        "/",
        "Connection: close, X-Hop, Host",
        "X-Hop: 1",
        "Keep-Alive: 5",
        "TE: trailers",
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic eA==",
        "Upgrade: h2c",
        "HTTP2-Settings: AAA",
        "X-End: 2",
    )
    async with answering(answer) as upstream:
        front = serve(to_port(upstream.port))
        got = await fetch(front.port, sent)
    names = {name.lower() for name, _ in got.headers}
    assert names == {"x-outer", "content-length", "connection"}
    passed = {line.partition(b":")[0].lower() for line in upstream.requests[0].split(b"\r\n")[1:]}
    forwarded = {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port"}
    assert passed == {b"host", b"x-end", b"forwarded", b"", *forwarded}


async def test_the_owner_can_change_headers_but_not_the_framing(serve):
    request = Edits(
        put=((b"Host", b"localhost:3000"), (b"X-Added", b"1"), (b"Content-Length", b"99")),
        remove=frozenset({b"cookie", b"transfer-encoding"}),
    )
    response = Edits(put=((b"X-Frame-Options", b"DENY"),), remove=frozenset({b"server"}))
    answer = (
        b"HTTP/1.1 200 OK\r\nServer: x\r\nx-frame-options: ALLOW\r\nContent-Length: 2\r\n\r\nok"
    )
    async with answering(answer) as upstream:
        front = serve(to_port(upstream.port, request=request, response=response))
        got = await fetch(front.port, get("/", "Cookie: a=b", "X-Kept: 1"))
    head = upstream.requests[0]
    hosts = [line for line in head.split(b"\r\n") if b"host: " in line.lower()]
    assert sorted(hosts) == [b"Host: localhost:3000", f"X-Forwarded-Host: {HOST}".encode()]
    assert b"X-Added: 1\r\n" in head and b"X-Kept: 1\r\n" in head
    assert b"Cookie" not in head and b"Content-Length" not in head
    assert got.get("x-frame-options") == "DENY"
    assert got.get("server") is None


async def test_the_owner_s_word_about_the_way_counts_more_than_the_front_s(serve):
    edits = Edits(put=((b"X-Forwarded-Host", b"else.test"),), remove=frozenset({b"forwarded"}))
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port, request=edits))
        await fetch(front.port, get())
    head = upstream.requests[0].lower()
    assert head.count(b"x-forwarded-host:") == 1
    assert b"x-forwarded-host: else.test\r\n" in head
    assert b"\r\nforwarded:" not in head
    assert b"x-forwarded-for: 127.0.0.1\r\n" in head


def test_edits_cannot_smuggle_a_line():
    with pytest.raises(ValueError, match="no header"):
        Edits(put=((b"X", b"a\r\nY: b"),))


async def test_a_url_in_the_request_line_becomes_a_path(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        for url in (f"http://{HOST}/x?y", f"http://{HOST.upper()}:80/x?y"):
            got = await fetch(front.port, get(url))
            assert got.status == 200
        await fetch(front.port, get(f"http://{HOST}?q"))
    targets = [request.split()[1] for request in upstream.requests]
    assert targets == [b"/x?y", b"/x?y", b"/?q"]


async def test_events_flow_without_waiting_for_more(serve):
    go_on = asyncio.Event()

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        for number in range(3):
            event = b"data: %d\n\n" % number
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await go_on.wait()
            go_on.clear()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port), response_timeout_s=0.3, body_timeout_s=0.3)
        async with connected(front.port) as client:
            await client.send(get("/", "Accept: text/event-stream"))
            for number in range(3):
                async with asyncio.timeout(2):
                    await client.reader.readuntil(b"data: %d\n\n" % number)
                await asyncio.sleep(0.4)  # longer than any deadline
                go_on.set()
            assert await client.reader.readexactly(7) == b"\r\n0\r\n\r\n"


async def test_a_request_body_flows_before_it_is_complete(serve):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            piece = await reader.readexactly(4)
            writer.write(b"4\r\n" + piece + b"\r\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(post(b"x" * 12).removesuffix(b"x" * 12))
            for piece in (b"abcd", b"efgh", b"ijkl"):
                await client.send(piece)
                async with asyncio.timeout(2):
                    await client.reader.readuntil(piece)
            async with asyncio.timeout(2):
                assert await client.reader.read() == b"\r\n0\r\n\r\n"


async def test_small_packets_are_not_delayed_on_either_side(serve):
    seen: list[socket.socket] = []

    async def dial():
        opened = await dial_tcp(upstream.port)()
        seen.append(opened.dup())
        return opened

    def client_sockets(running):
        return [
            client.transport.get_extra_info("socket").getsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY
            )
            and client.transport.get_extra_info("socket").getsockopt(
                socket.SOL_SOCKET, socket.SO_KEEPALIVE
            )
            for client in running._hub.clients
        ]

    async with answering(OK) as upstream:
        front = serve(lambda _: Upstream("key", dial))
        async with connected(front.port) as client:
            await client.send(get())
            await client.answer()
            assert [bool(option) for option in front.call(client_sockets)] == [True]
    assert seen[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    seen[0].close()


async def test_a_unix_socket_can_be_the_upstream(serve, tmp_path):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        writer.close()

    async def dial():
        opened = socket.socket(socket.AF_UNIX)
        opened.setblocking(False)
        opened.connect(str(tmp_path / "api.sock"))
        return opened

    server = await asyncio.start_unix_server(handle, tmp_path / "api.sock")
    async with server:
        front = serve(lambda _: Upstream("api", dial))
        assert (await fetch(front.port, get(host="localhost:7070"))).body == b"ok"


async def test_a_client_that_has_closed_its_side_still_gets_its_answer(serve):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.2)
        writer.write(OK)
        await writer.drain()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            client.writer.write_eof()
            assert (await client.answer()).body == b"ok"
            assert await client.rest() == b""


async def test_a_client_that_leaves_takes_its_request_with_it(serve):
    closed = asyncio.Event()

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.read() == b""
        closed.set()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port), half_close_s=0.3)
        async with connected(front.port) as client:
            await client.send(get())
            await asyncio.sleep(0.1)
        async with asyncio.timeout(3):
            await closed.wait()
