"""A client that is gone is noticed soon; one that has said all it had to say is not cut off."""

import asyncio

import pytest

from tests.interfaces.preview.running import OK, connected, get, scripted, to_port

SOON_S = 1.5
"""Far below the ten seconds after which a silent client counts as gone anyway."""
BEGINNING = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
NEXT, LAST = b"6\r\n world\r\n", b"0\r\n\r\n"


@pytest.mark.parametrize("beginning", [b"", BEGINNING], ids=["before", "during"])
async def test_a_client_that_is_gone_is_noticed_although_the_answer_is_silent(serve, beginning):
    closed = asyncio.Event()

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(beginning)
        assert await reader.read() == b""
        closed.set()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            if beginning:
                while b"hello" not in client._left:
                    client._left += await client.reader.read(65536)
            await asyncio.sleep(0.1)
        async with asyncio.timeout(SOON_S):
            await closed.wait()
    assert front.open_connections == 0


async def test_one_that_waits_with_its_side_closed_is_told_to_wait(serve):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(SOON_S)
        writer.write(OK)
        await writer.drain()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            client.writer.write_eof()
            answer = await client.answer()
            assert (answer.status, answer.body) == (200, b"ok")
            assert [status for status, _ in answer.interim] == [102]
            assert await client.rest() == b""


@pytest.mark.parametrize("after", [NEXT + LAST, LAST], ids=["a chunk", "the last chunk"])
async def test_what_asks_whether_it_is_there_is_no_part_of_the_answer(serve, after):
    go_on = asyncio.Event()

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(BEGINNING)
        await go_on.wait()
        await asyncio.sleep(0.5)
        writer.write(after)
        await writer.drain()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            while b"hello" not in client._left:
                client._left += await client.reader.read(65536)
            client.writer.write_eof()
            go_on.set()
            answer = await client.answer()
            assert answer.body == b"hello" + (b" world" if NEXT in after else b"")
            assert not answer.interim
            assert await client.rest() == b""


async def test_an_old_client_is_sent_nothing_that_it_would_not_understand(serve):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)
        writer.write(OK)
        await writer.drain()

    async with scripted(handle) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
            client.writer.write_eof()
            assert (await client.rest()).startswith(b"HTTP/1.1 200 OK")
