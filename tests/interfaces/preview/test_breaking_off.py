"""An answer that cannot be completed ends in good order, and is never taken for a complete one."""

import asyncio
import contextlib
import ssl

import pytest

from paddock.interfaces.preview import Front, Upstream
from tests.interfaces.e2b.certificates import certificate_for
from tests.interfaces.preview.running import connected, dial_tcp, get, scripted, to_port

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def sends(*pieces: bytes):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)

    return handle


@pytest.mark.parametrize("piece", [b"5\r\nhel", b"5\r\nhello\r\n"], ids=["within", "between"])
async def test_a_stream_that_breaks_off_ends_without_its_last_chunk(serve, piece):
    """A client that follows a sandbox then asks what became of it, and does not take what it has
    for all there is."""
    async with scripted(sends(STREAM + piece)) as upstream:
        front = serve(to_port(upstream.port))
        async with connected(front.port) as client:
            await client.send(get())
            assert (await client.rest()).endswith(piece)


@pytest.mark.parametrize("kind", ["chunked", "until the end"])
async def test_by_tls_only_what_has_a_frame_ends_with_close_notify(tmp_path, kind):
    authority, certificate = certificate_for(tmp_path, "localhost")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    head = STREAM if kind == "chunked" else b"HTTP/1.1 200 OK\r\n\r\n"
    until = asyncio.Event()

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"5\r\nhello\r\n")
        await writer.drain()
        await until.wait()
        writer.transport.abort()

    visits = []

    @contextlib.contextmanager
    def staying(visit):
        visits.append(visit)
        yield

    async with scripted(handle) as upstream:
        where = Upstream(key=1, dial=dial_tcp(upstream.port), staying=staying)
        async with Front(lambda _: where) as front:
            _, port = await front.listen("127.0.0.1", 0, server)
            ended = asyncio.create_task(asyncio.to_thread(read_by_tls, port, authority))
            while not visits or not visits[0].is_answered:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            visits[0].cut(502, "gone", "it is gone", "")
            assert await ended == ("in order" if kind == "chunked" else "broken")
            until.set()


def read_by_tls(port: int, authority: object) -> str:
    """How the connection ends."""
    import socket

    context = ssl.create_default_context(cafile=str(authority))
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        with context.wrap_socket(
            plain, server_hostname="localhost", suppress_ragged_eofs=False
        ) as secure:
            secure.sendall(get())
            try:
                while secure.recv(65536):
                    pass
            except (ssl.SSLEOFError, ConnectionResetError):
                return "broken"
    return "in order"
