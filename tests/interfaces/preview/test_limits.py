"""Sizes, deadlines and numbers of connections have limits, and each says which it was."""

import asyncio
import contextlib
import json
import time

import pytest

from paddock.interfaces.preview import Reply, Upstream
from tests.interfaces.preview.running import (
    HOST,
    OK,
    answering,
    connected,
    eventually,
    fetch,
    get,
    post,
    refused_port,
    scripted,
    to_port,
)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/", "X: " + "y" * 65_536), 431),
        (get("/", *(f"X-{number}: y" for number in range(100))), 431),
        (get("/", *(f"X-{number}: y" for number in range(99))), 200),
        (get("/", "X: " + "y" * 64_000), 200),
        (get("/" + "x" * 16_384), 414),
        (get("/" + "x" * 16_300), 200),
        (get("/" + "x" * 100_000), 414),
    ],
)
@pytest.mark.parametrize("pieces", [1, 7])
async def test_heads_have_a_size(serve, request_, status, pieces):
    step = len(request_) // pieces + 1
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            for start in range(0, len(request_), step):
                await client.send(request_[start : start + step])
                await asyncio.sleep(0.01)
            got = await client.answer()
    assert got.status == status
    assert len(upstream.requests) == (status == 200)


async def test_a_head_that_never_ends_gets_431_without_being_kept(serve):
    front = serve(lambda _: Reply(200))
    async with connected(front.port) as client:
        await client.send(get().removesuffix(b"\r\n"))
        for _ in range(80):
            await client.send(b"X: " + b"y" * 1000 + b"\r\n")
        assert (await client.answer()).status == 431


async def test_a_slow_head_gets_408(serve):
    front = serve(lambda _: Reply(200), head_timeout_s=0.4)
    async with connected(front.port) as client:
        began = time.monotonic()
        answer = asyncio.create_task(client.answer())
        for byte in get():
            if answer.done():
                break
            await client.send(bytes([byte]))
            await asyncio.sleep(0.05)
        assert (await answer).status == 408
        assert time.monotonic() - began > 0.3


async def test_a_connection_that_says_nothing_is_closed(serve):
    front = serve(lambda _: Reply(200), head_timeout_s=0.3)
    async with connected(front.port) as client:
        assert await client.rest(3) == b""


async def test_an_idle_connection_is_closed(serve):
    front = serve(lambda _: Reply(200), idle_timeout_s=0.3)
    async with connected(front.port) as client:
        await client.send(get())
        assert (await client.answer()).status == 200
        began = time.monotonic()
        assert await client.rest(3) == b""
        assert time.monotonic() - began > 0.2


@pytest.mark.parametrize("framing", ["Content-Length: 10", "Transfer-Encoding: chunked"])
async def test_a_body_that_stalls_gets_408(serve, framing):
    async with scripted(_swallow) as upstream:
        front = serve(to_port(upstream.port), body_timeout_s=0.4)
        async with connected(front.port) as client:
            await client.send(get("/", framing).replace(b"GET", b"POST"))
            for _ in range(4):
                await asyncio.sleep(0.2)
                await client.send(b"1\r\nx\r\n" if "chunked" in framing else b"x")
            assert (await client.answer("POST", timeout=3)).status == 408


@pytest.mark.parametrize("framing", ["Content-Length: 100000", "Transfer-Encoding: chunked"])
async def test_a_body_that_comes_byte_by_byte_gets_408(serve, framing):
    """Issue: slow request bodies were limited only by idle time."""
    async with scripted(_swallow) as upstream:
        front = serve(to_port(upstream.port), body_timeout_s=0.6)
        async with connected(front.port) as client:
            await client.send(get("/", framing).replace(b"GET", b"POST"))
            answer = asyncio.create_task(client.answer("POST", timeout=10))
            while not answer.done():
                await client.send(b"1\r\nx\r\n" if "chunked" in framing else b"x")
                await asyncio.sleep(0.05)
            assert (await answer).status == 408


async def test_a_slow_body_that_keeps_the_pace_passes(serve):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2000)
        writer.write(OK)

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port), body_timeout_s=0.6, min_body_rate=100)
        async with connected(front.port) as client:
            await client.send(get("/", "Content-Length: 2000").replace(b"GET", b"POST"))
            for _ in range(20):
                await client.send(b"x" * 100)
                await asyncio.sleep(0.05)
            assert (await client.answer("POST", timeout=3)).status == 200


async def test_an_upstream_that_does_not_take_the_body_gets_a_504_for_its_client(serve):
    async def handle(reader, _):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(50)

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port), body_timeout_s=1.5)
        async with connected(front.port) as client:
            client.writer.write(post(b"x" * 30_000_000))
            assert (await client.answer("POST", timeout=40)).status == 504
            client.writer.transport.abort()


async def test_an_answer_that_does_not_begin_gives_504(serve):
    async with scripted(_swallow) as upstream:
        front = serve(to_port(upstream.port), response_timeout_s=0.3)
        async with connected(front.port) as client:
            await client.send(get())
            got = await client.answer(timeout=3)
            assert got.status == 504
            assert b"response_timeout" in got.body
            # The connection to the client is as good as before.
            await client.send(get())
            assert (await client.answer(timeout=3)).status == 504


async def test_an_upstream_may_have_its_own_deadline(serve):
    async with scripted(_swallow) as upstream:
        front = serve(to_port(upstream.port, response_timeout_s=0.2), body_timeout_s=0.2)
        assert (await fetch(front.port, get())).status == 504


async def test_a_connection_that_is_not_made_in_time_gives_504(serve):
    cancelled = []

    async def dial():
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    front = serve(lambda _: Upstream("slow", dial), connect_timeout_s=0.2)
    got = await fetch(front.port, get())
    assert got.status == 504
    assert b"connect_timeout" in got.body
    assert cancelled == [True]


async def test_a_client_that_leaves_while_the_owner_thinks_ends_the_thinking(serve):
    thinking, cancelled = [], []

    async def resolve(_):
        thinking.append(True)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    front = serve(resolve, half_close_s=0.2)
    async with connected(front.port) as client:
        await client.send(get())
        await eventually(lambda: bool(thinking))
    await eventually(lambda: bool(cancelled))


async def test_a_refused_connection_gives_what_the_owner_says(serve):
    async def on_refused(error):
        assert isinstance(error, ConnectionRefusedError)
        return Reply(502, ((b"X-Listening", b"5173, 8080"),), b"try 5173")

    with refused_port() as port:
        front = serve(to_port(port, on_refused=on_refused))
        got = await fetch(front.port, get())
        assert (got.status, got.get("x-listening"), got.body) == (502, "5173, 8080", b"try 5173")
        assert front.counts.failed == 1


async def test_a_refused_connection_gives_502(serve):
    with refused_port() as port:
        front = serve(to_port(port))
        got = await fetch(front.port, get())
    assert got.status == 502


async def test_an_owner_that_fails_gives_500_and_the_front_goes_on(serve):
    def resolve(head):
        if head.target == b"/sync":
            raise RuntimeError("on purpose")
        return later(head)

    async def later(head):
        if head.target == b"/async":
            raise RuntimeError("on purpose")
        return Reply(200)

    front = serve(resolve)
    async with connected(front.port) as client:
        for target, status in (("/sync", 500), ("/async", 500), ("/", 200)):
            await client.send(get(target))
            got = await client.answer()
            assert got.status == status
            assert b"on purpose" not in got.body


async def test_an_activity_that_cannot_begin_gives_500(serve):
    @contextlib.contextmanager
    def activity():
        raise RuntimeError("on purpose")
        yield

    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port, activity=activity))
        assert (await fetch(front.port, get())).status == 500
    assert upstream.connections == 0


async def test_a_slow_reader_is_dropped_in_the_end(serve):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(100):
            writer.write(b"x" * 1_000_000)
            await writer.drain()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port), send_timeout_s=0.4)
        async with connected(front.port) as client:
            await client.send(get())
            await eventually(lambda: front.open_connections == 1)
            await eventually(lambda: front.open_connections == 0)


async def test_there_is_a_limit_to_connections(serve):
    front = serve(lambda _: Reply(200), max_connections=3)
    async with connected(front.port) as one, connected(front.port), connected(front.port):
        await eventually(lambda: front.open_connections == 3)
        async with connected(front.port) as four:
            await four.send(get())
            got = await four.answer()
            assert (got.status, got.get("retry-after")) == (503, "2")
            assert await four.rest() == b""
        await one.send(get())
        assert (await one.answer()).status == 200
    await eventually(lambda: front.open_connections == 0)
    assert (await fetch(front.port, get())).status == 200
    assert front.counts.turned_away == 1


async def test_a_flood_is_cut_off_without_a_word(serve):
    front = serve(lambda _: Reply(200), max_connections=1)
    async with connected(front.port), connected(front.port), connected(front.port) as third:
        assert await third.rest() == b""
    await eventually(lambda: front.open_connections == 0)


async def test_there_is_a_limit_for_each_address(serve):
    front = serve(lambda _: Reply(200), max_connections_per_address=2)
    async with connected(front.port), connected(front.port):
        await eventually(lambda: front.open_connections == 2)
        got = await fetch(front.port, get())
        assert got.status == 503
        assert b"from your address" in got.body
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", front.port, local_addr=("127.0.0.2", 0)
        )
        writer.write(get("/", "Connection: close"))
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
    await eventually(lambda: front.open_connections == 0)
    assert (await fetch(front.port, get())).status == 200


async def test_a_trusted_proxy_may_have_any_number_of_connections(serve):
    front = serve(
        lambda _: Reply(200), max_connections_per_address=1, trusted_proxies=("127.0.0.0/8",)
    )
    async with connected(front.port), connected(front.port):
        assert (await fetch(front.port, get())).status == 200


async def test_an_answer_arrives_although_the_body_was_not_read(serve):
    front = serve(lambda _: Reply(404, (), b"nothing here"))
    async with connected(front.port) as client:
        client.writer.write(post(b"x" * 2_000_000))
        got = await client.answer("POST")
        assert (got.status, got.body, got.get("connection")) == (404, b"nothing here", "close")


async def test_an_early_answer_to_a_large_body_arrives(serve):
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(1000)
        writer.write(refusal)
        await writer.drain()
        await asyncio.sleep(0.5)

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            client.writer.write(post(b"x" * 20_000_000))
            got = await client.answer("POST")
            client.writer.transport.abort()
    assert (got.status, got.body) == (413, b"no")


async def _swallow(reader, writer):
    while await reader.read(65536):
        pass


def test_hosts_are_compared_without_their_port(serve):
    seen = []

    def resolve(head):
        seen.append((head.host, head.method, head.target, head.peer, head.is_upgrade))
        return Reply(200)

    front = serve(resolve)
    asyncio.run(fetch(front.port, get("/a?b", host=f"{HOST.upper()}.:7070")))
    assert seen == [(HOST, "GET", b"/a?b", "127.0.0.1", False)]


@pytest.mark.parametrize("limit", ["max_connections_per_address", "max_connections"])
async def test_the_longest_idle_connection_makes_room_for_a_new_one(serve, limit):
    front = serve(lambda _: Reply(200), **{limit: 3})
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(front.port)) for _ in range(3)]
        for client in (*clients, clients[0]):
            await client.send(get())
            assert (await client.answer()).status == 200
        async with connected(front.port) as newcomer:
            await newcomer.send(get())
            assert (await newcomer.answer()).status == 200
            assert await clients[1].rest(3) == b""
        await clients[0].send(get())
        assert (await clients[0].answer()).status == 200
    assert (front.counts.evicted, front.counts.turned_away) == (1, 0)


async def test_a_connection_that_waits_for_its_answer_makes_no_room(serve):
    async with scripted(_swallow) as upstream:
        front = serve(to_port(upstream.port), max_connections_per_address=1)
        async with connected(front.port) as waiting:
            await waiting.send(get())
            await eventually(lambda: front.counts.requests == 1)
            async with connected(front.port) as newcomer:
                answer = await newcomer.answer()
    assert answer.status == 503
    told = json.loads(answer.body)
    assert (told["code"], told["error"]["code"]) == (503, "too_many_connections")
    assert told["message"] == told["error"]["message"]
