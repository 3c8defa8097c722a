"""The front ends in order: nothing new, what is under way may finish, then everything is closed."""

import asyncio
import time

import pytest

from paddock.interfaces.preview import Reply
from tests.interfaces.preview.running import connected, eventually, get, scripted, to_port


async def test_a_request_under_way_is_answered_and_then_the_connection_closed(serve):
    idle_is_gone = asyncio.Event()

    async def slow(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await idle_is_gone.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
        await reader.read()

    async with scripted(slow) as upstream:
        front = serve(to_port(upstream.port), grace_s=30)
        async with connected(front.port) as busy, connected(front.port) as idle:
            await busy.send(get())
            await eventually(lambda: front.counts.requests == 1)
            began = time.monotonic()
            front.stop()
            assert await idle.rest(20) == b""
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", front.port)
            idle_is_gone.set()
            got = await busy.answer()
            assert (got.body, got.get("connection")) == (b"done", "close")
            assert await busy.rest() == b""
        await eventually(lambda: not front.is_running)
        assert time.monotonic() - began < 20


async def test_what_takes_longer_than_the_grace_is_cut_off(serve):
    async def never(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
        await reader.read()

    async with scripted(never) as upstream:
        front = serve(to_port(upstream.port), grace_s=0.4)
        async with connected(front.port) as client:
            await client.send(get())
            await client.reader.readuntil(b"\r\n\r\n")
            began = time.monotonic()
            front.stop()
            assert await client.rest(20) == b""
            assert time.monotonic() - began > 0.3
        await eventually(lambda: not front.is_running)


async def test_an_owner_that_still_thinks_is_cancelled(serve):
    async def resolve(_):
        await asyncio.sleep(60)
        return Reply(200)

    front = serve(resolve, grace_s=0.2)
    async with connected(front.port) as client:
        await client.send(get())
        await eventually(lambda: front.counts.requests == 1)
        front.stop()
        assert await client.rest(3) == b""
    await eventually(lambda: not front.is_running)


async def test_an_upgraded_connection_does_not_hold_up_the_end(serve):
    async def switch(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")
        await reader.read()

    async with scripted(switch) as upstream:
        front = serve(to_port(upstream.port), grace_s=60)
        async with connected(front.port) as client:
            await client.send(get("/", "Connection: Upgrade", "Upgrade: x"))
            await client.reader.readuntil(b"\r\n\r\n")
            began = time.monotonic()
            front.stop()
            assert await client.rest(20) == b""
            assert time.monotonic() - began < 20
        await eventually(lambda: not front.is_running)
