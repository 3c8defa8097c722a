"""However a client's bytes are cut into packets, the same requests arrive and are answered."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.interfaces.preview import FrontConfig, Pages
from tests.interfaces.preview.running import HOST, RunningFront, get, post, to_port
from tests.interfaces.preview.test_bodies import split

CHUNKED = (
    f"POST /c HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    + b"5\r\nhello\r\n3;x=y\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"
)
REQUESTS = {
    "get": get("/g", "X-Long: " + "v" * 300),
    "post": post(b"body of a request\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
    "chunked": CHUNKED,
    "empty": post(b""),
    "old": get("/o", "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "url": get(f"http://{HOST}/u"),
}
BAD = {
    "lengths": get("/b", "Content-Length: 1", "Content-Length: 2"),
    "chunk": CHUNKED.replace(b"5\r\n", b"5 \r\n"),
    "line feed": get().replace(b"\r\n", b"\n"),
    "host": get("/b", "Host: b"),
    "tls": b"\x16\x03\x01\x02\x00",
}


class Recorder:
    """Answers every request with its own bytes, so that what arrived can be compared."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                lower = request.lower()
                if b"content-length: " in lower:
                    length = int(lower.partition(b"content-length: ")[2].split()[0])
                    request += await reader.readexactly(length)
                elif b"transfer-encoding" in lower:
                    request += await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(request))
                writer.write(request)
                await writer.drain()
        writer.close()


@pytest.fixture(scope="module")
def recorder() -> Iterator[int]:
    ready: list[int] = []
    started, stop = threading.Event(), threading.Event()

    async def main() -> None:
        server = await asyncio.start_server(Recorder(), "127.0.0.1", 0)
        ready.append(server.sockets[0].getsockname()[1])
        started.set()
        await asyncio.to_thread(stop.wait)
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    started.wait(5)
    yield ready[0]
    stop.set()
    thread.join(10)


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def port(request: pytest.FixtureRequest, recorder: int) -> Iterator[int]:
    config = FrontConfig(grace_s=0.1, max_connections_per_address=4096)
    with RunningFront(request.param, to_port(recorder), config, Pages()) as front:
        yield front.port


def converse(port: int, pieces: list[bytes]) -> bytes:
    """Everything the front says to these packets, without what differs by the clock."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                client.sendall(piece)
        said = b""
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65536):
                said += data
    return said


LAST = get("/last", "Connection: close")
names = st.lists(st.sampled_from(sorted(REQUESTS)), min_size=0, max_size=4)
cuts = st.lists(st.integers(0, 4000), max_size=12)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(names, cuts)
def test_the_same_requests_arrive_however_they_are_cut(port, chosen, cuts):
    wire = b"".join(REQUESTS[name] for name in chosen) + LAST
    assert converse(port, split(wire, cuts)) == _expected(port, tuple(chosen))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(names, st.sampled_from(sorted(BAD)), cuts)
def test_the_same_refusal_comes_however_it_is_cut(port, chosen, bad, cuts):
    before = b"".join(REQUESTS[name] for name in chosen)
    said = converse(port, split(before + BAD[bad], cuts))
    assert said.count(b"HTTP/1.1 200 OK\r\n") == len(chosen)
    assert said.count(b"HTTP/1.1 400 Bad Request\r\n") == 1


_known: dict[tuple[int, tuple[str, ...]], bytes] = {}


def _expected(port: int, chosen: tuple[str, ...]) -> bytes:
    """What is said when every request comes alone and whole."""
    key = (port, chosen)
    if key not in _known:
        _known[key] = b"".join(_alone(port, name) for name in chosen) + converse(port, [LAST])
    return _known[key]


def _alone(port: int, name: str) -> bytes:
    said = converse(port, [REQUESTS[name] + LAST])
    return said.removesuffix(converse(port, [LAST]))
