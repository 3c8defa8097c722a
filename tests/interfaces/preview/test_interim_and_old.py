"""What comes before the answer, and clients that know less than HTTP/1.1."""

from tests.interfaces.preview.running import (
    OK,
    answering,
    connected,
    fetch,
    get,
    post,
    scripted,
    to_port,
)


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
