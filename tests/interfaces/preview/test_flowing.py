"""Bytes flow as they come, and whoever leaves takes the request along."""

import asyncio
import socket

from paddock.interfaces.preview import Upstream
from tests.interfaces.preview.running import (
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
