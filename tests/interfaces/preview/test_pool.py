"""Idle upstream connections are used again, as long as that is safe."""

import asyncio

import pytest

from paddock.interfaces.preview import Upstream
from tests.interfaces.preview.running import (
    OK,
    answering,
    connected,
    dial_tcp,
    eventually,
    fetch,
    get,
    post,
    scripted,
    to_port,
)


def idle(front) -> int:
    return front.call(lambda running: len(running._hub.pool))


async def test_clients_share_what_is_idle(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        for _ in range(4):
            assert (await fetch(front.port, get())).body == b"ok"
        assert idle(front) == 1
    assert upstream.connections == 1


async def test_keys_do_not_share(serve):
    async with answering(OK) as upstream:
        dial = dial_tcp(upstream.port)
        front = serve(lambda head: Upstream(head.target, dial))
        for target in ("/a", "/b", "/a", "/b"):
            await fetch(front.port, get(target))
        assert idle(front) == 2
        front.call(lambda running: running.forget(b"/a"))
        assert idle(front) == 1
    assert upstream.connections == 2


async def test_idle_connections_expire(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port), upstream_idle_s=0.2)
        await fetch(front.port, get())
        assert idle(front) == 1
        await eventually(lambda: idle(front) == 0)
        await fetch(front.port, get())
    assert upstream.connections == 2


async def test_what_the_upstream_says_about_idleness_is_believed(serve):
    answer = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1, max=5\r\nContent-Length: 2\r\n\r\nok"
    async with answering(answer) as upstream:
        front = serve(to_port(upstream.port))
        await fetch(front.port, get())
        assert idle(front) == 0


async def test_the_number_of_idle_connections_is_limited(serve):
    async def handle(reader, writer):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.1)
            writer.write(OK)

    async with scripted(handle) as upstream:
        dial = dial_tcp(upstream.port)
        front = serve(
            lambda head: Upstream(head.target, dial), max_idle_per_upstream=2, max_idle_upstreams=3
        )
        await asyncio.gather(*(fetch(front.port, get("/a")) for _ in range(5)))
        assert idle(front) == 2
        await asyncio.gather(*(fetch(front.port, get("/b")) for _ in range(5)))
        assert idle(front) == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
async def test_what_the_upstream_closes_is_not_kept(serve, answer):
    async with answering(answer) as upstream:
        front = serve(to_port(upstream.port))
        await fetch(front.port, get())
        assert idle(front) == 0


class Fickle:
    """Answers so many requests on its connections, and closes each on the next without a word."""

    def __init__(self, *good: int, last: bytes = b"") -> None:
        self.good, self.last, self.heads = list(good), last, []

    async def __call__(self, reader, writer):
        good = self.good.pop(0) if len(self.good) > 1 else self.good[0]
        for _ in range(good):
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(OK)
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.last)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_a_stale_connection_is_replaced_once_for_what_can_be_repeated(serve, method):
    async with scripted(Fickle(1, 0)) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            assert (await client.answer()).status == 200
            await client.send(get("/again").replace(b"GET", method.encode()))
            assert (await client.answer(method)).status == 502
    assert front.counts.retried == 1
    assert upstream.connections == 2


async def test_a_request_survives_a_stale_connection(serve):
    fickle = Fickle(1)
    async with scripted(fickle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            for number in range(5):
                await client.send(get(f"/{number}"))
                assert (await client.answer()).status == 200
    assert front.counts.retried == 4
    assert [head.split()[1] for head in fickle.heads[:3]] == [b"/0", b"/1", b"/1"]
    assert upstream.connections == 5


@pytest.mark.parametrize("request_", [post(b"pay"), post(b""), post(b"x").replace(b"POST", b"PUT")])
async def test_what_may_have_had_an_effect_is_not_repeated(serve, request_):
    async with scripted(Fickle(1)) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            assert (await client.answer()).status == 200
            await client.send(request_)
            got = await client.answer("POST")
    assert got.status == 502
    assert front.counts.retried == 0
    assert upstream.connections == 1


async def test_a_fresh_connection_that_dies_is_not_tried_again(serve):
    async with scripted(Fickle(0)) as upstream:
        front = serve(to_port(upstream.port))
        assert (await fetch(front.port, get())).status == 502
    assert upstream.connections == 1


async def test_an_answer_that_has_begun_is_not_asked_for_again(serve):
    async with scripted(Fickle(1, last=b"HTTP/1.1 200 O")) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            assert (await client.answer()).status == 200
            await client.send(get())
            assert (await client.answer()).status == 502
    assert front.counts.retried == 0
