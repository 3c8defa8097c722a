"""After an upgrade bytes flow both ways, unread."""

import asyncio
import contextlib

import pytest
import websockets
from websockets.asyncio.server import serve as serve_websocket

from paddock.interfaces.preview import Upstream
from tests.interfaces.preview.conftest import MOSTLY_UVLOOP
from tests.interfaces.preview.running import (
    HOST,
    OK,
    answering,
    connected,
    dial_tcp,
    eventually,
    fetch,
    get,
    scripted,
    to_port,
)

UPGRADE = get("/", "Connection: keep-alive, Upgrade", "Upgrade: echo/1")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\n"


async def echo(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"Connection: Upgrade\r\nUpgrade: echo/1\r\n" in head
    writer.write(SWITCHED)
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write(b"<end>")


async def test_a_websocket_client_talks_to_a_websocket_server(serve):
    async def handle(connection):
        async for message in connection:
            await connection.send(message)

    async with serve_websocket(handle, "127.0.0.1", 0, max_size=None) as server:
        front = serve(to_port(server.sockets[0].getsockname()[1]), response_timeout_s=0.5)
        async with websockets.connect(
            f"ws://{HOST}:{front.port}/hmr",
            host="127.0.0.1",
            port=front.port,
            max_size=None,
            proxy=None,
        ) as client:
            for message in ("hello", b"\0\1", "x" * 3_000_000):
                await client.send(message)
                assert await client.recv() == message
            await asyncio.sleep(1)  # no deadline of a request counts here
            await client.send("still there")
            assert await client.recv() == "still there"
    assert front.counts.upgraded == 1


async def test_any_other_protocol_is_passed_with_early_data(serve):
    async with scripted(echo) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(UPGRADE + b"early")
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
            assert b"Connection: Upgrade\r\nUpgrade: echo/1\r\n" in head
            assert await client.reader.readexactly(5) == b"early"
            await client.send(b"late")
            assert await client.reader.readexactly(4) == b"late"


async def test_early_data_of_the_upstream_arrives_too(serve):
    async with answering(SWITCHED + b"welcome") as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(UPGRADE)
            await client.reader.readuntil(b"\r\n\r\n")
            assert await client.reader.readexactly(7) == b"welcome"


@pytest.mark.parametrize("early", [False, True])
async def test_a_side_that_ends_leaves_the_other_open(serve, early):
    async with scripted(echo) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            if early:
                await client.send(UPGRADE + b"all")
                client.writer.write_eof()
                await client.reader.readuntil(b"\r\n\r\n")
            else:
                await client.send(UPGRADE)
                await client.reader.readuntil(b"\r\n\r\n")
                await client.send(b"all")
                client.writer.write_eof()
            assert await client.rest() == b"all<end>"
        await eventually(lambda: front.open_connections == 0)


async def test_an_upstream_that_ends_leaves_the_client_open(serve):
    got = asyncio.Queue()

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHED + b"bye")
        writer.write_eof()
        await got.put(await reader.read())

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(UPGRADE)
            await client.reader.readuntil(b"\r\n\r\n")
            assert await client.rest() == b"bye"
            await client.send(b"last words")
            client.writer.write_eof()
            async with asyncio.timeout(3):
                assert await got.get() == b"last words"
        await eventually(lambda: front.open_connections == 0)


async def test_a_half_closed_splice_that_is_silent_ends(serve):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHED)
        await asyncio.sleep(5)

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port), idle_timeout_s=0.3)
        async with connected(front.port) as client:
            await client.send(UPGRADE)
            await client.reader.readuntil(b"\r\n\r\n")
            client.writer.write_eof()
            assert await client.rest(3) == b""
        await eventually(lambda: front.open_connections == 0)


async def test_a_refused_upgrade_is_an_ordinary_answer(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(UPGRADE)
            assert (await client.answer()).body == b"ok"
            await client.send(get())
            assert (await client.answer()).body == b"ok"


async def test_early_data_of_a_refused_upgrade_is_no_request(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(UPGRADE + get("/smuggled"))
            assert (await client.answer()).get("connection") == "close"
            assert await client.rest() == b""
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "lines",
    [
        ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
        ("Upgrade: websocket",),
        ("Connection: Upgrade",),
    ],
)
async def test_what_is_no_upgrade_is_passed_without_one(serve, lines):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        assert (await fetch(front.port, get("/", *lines))).body == b"ok"
    assert b"upgrade" not in upstream.requests[0].lower()
    assert b"http2-settings" not in upstream.requests[0].lower()


async def test_an_upgrade_with_a_body_is_an_ordinary_request(serve):
    async def handle(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"pgrade" not in head
        body = await reader.readexactly(5)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + body)
        await writer.drain()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        request = get("/", "Connection: Upgrade", "Upgrade: x", "Content-Length: 5") + b"hello"
        assert (await fetch(front.port, request)).body == b"hello"


@pytest.mark.parametrize("serve", MOSTLY_UVLOOP, indirect=True)
async def test_back_pressure_goes_through_a_splice(serve):
    sent = 0

    def buffered(running):
        sides = [side for splice in running._hub.splices for side in splice._sides]
        return [side.source.get_write_buffer_size() for side in sides]

    async def handle(reader, writer):
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHED)
        for _ in range(200):
            writer.write(b"x" * 1_000_000)
            await writer.drain()
            sent += 1_000_000

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(UPGRADE)
            await client.reader.readuntil(b"\r\n\r\n")
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.3)
            assert sent < 150_000_000  # the kernel's own buffers are large
            assert max(front.call(buffered)) < 2_000_000
            total = 0
            while data := await client.reader.read(2**20):
                total += len(data)
            assert total == 200_000_000


async def test_activity_lasts_as_long_as_the_connection(serve):
    active = []

    @contextlib.contextmanager
    def activity():
        active.append(1)
        try:
            yield
        finally:
            active.pop()

    async with scripted(echo) as upstream:
        front = serve(to_port(upstream.port, activity=activity))
        async with connected(front.port) as client:
            await client.send(UPGRADE)
            await client.reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.2)
            assert len(active) == 1
        await eventually(lambda: not active)


async def test_activity_ends_with_the_answer_however_it_ends(serve):
    active, seen = [], []

    @contextlib.contextmanager
    def activity():
        active.append(1)
        seen.append(1)
        try:
            yield
        finally:
            active.pop()

    async def handle(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        assert len(active) == 1
        if b"/ok" in head:
            writer.write(OK)
        elif b"/garbled" in head:
            writer.write(b"what?\r\n\r\n")
        await asyncio.sleep(0.1 if b"/close" in head else 1)

    async with scripted(handle) as upstream:
        front = serve(
            lambda head: Upstream(head.target, dial_tcp(upstream.port), activity=activity),
            response_timeout_s=0.3,
            half_close_s=0.1,
        )
        for target, status in (("/ok", 200), ("/garbled", 502), ("/close", 502), ("/slow", 504)):
            assert (await fetch(front.port, get(target))).status == status
            await eventually(lambda: not active)
        async with connected(front.port) as client:
            await client.send(get("/gone"))
            await eventually(lambda: bool(active))
        await eventually(lambda: not active)
    assert len(seen) == 5
