"""Files and archives of any size pass in the same memory. The server is a process of its own."""

import asyncio
import os
import socket
import tarfile
from contextlib import contextmanager

import aiohttp
import pytest

from tests.interfaces.api.memory import MIB, server_process

pytestmark = pytest.mark.timeout(110)
FILES = 4


@pytest.fixture(scope="module")
async def server():
    async with server_process() as made:
        yield made


@pytest.fixture
async def box(server):
    """The path of a new sandbox."""
    made = await server.admin.post("/v1/sandboxes", {"template": "plain"})
    assert made.status == 201, made.body
    path = f"/v1/sandboxes/{made['id']}"
    yield path
    await server.admin.delete(f"{path}?force=true")


@pytest.fixture
async def home(server, box):
    return (await server.admin.post(f"{box}/exec", {"cmd": ["pwd"]}))["stdout"].strip()


@pytest.fixture(params=[96, pytest.param(200, marks=pytest.mark.soak)])
def size(request):
    """Twice the allowed growth at least, in MiB."""
    return request.param


@contextmanager
def grows_less_than(server, most_mib):
    server.forget_peak()
    before = server.peak_mib()
    yield
    grown = server.peak_mib() - before
    assert grown < most_mib, f"{grown:.0f} MiB"


async def download(server, path):
    """The number of bytes."""
    taken = 0
    async with server.admin.session.get(
        server.admin.url + path,
        headers={"authorization": f"Bearer {server.admin.token}"},
        timeout=aiohttp.ClientTimeout(90),
    ) as answer:
        async for piece in answer.content.iter_chunked(MIB):
            taken += len(piece)
    return taken


async def pieces(size):
    block = os.urandom(MIB)
    for _ in range(size):
        yield block


async def test_a_large_file_passes_both_ways_in_bounded_memory(server, box, home, size):
    path = f"{box}/files?path={home}/large"
    with grows_less_than(server, 48):
        made = await server.admin.call("PUT", path, data=pieces(size))
        assert (made.status, made["size"]) == (200, size * MIB)
        assert await download(server, path) == size * MIB


async def test_a_slow_reader_does_not_make_the_server_hold_the_file(server, box, home):
    path = f"{box}/files?path={home}/slow"
    assert (await server.admin.call("PUT", path, data=pieces(96))).status == 200
    host, port = server.admin.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.setblocking(False)
        with grows_less_than(server, 32):
            request = (
                f"GET {path} HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: Bearer {server.admin.token}\r\n\r\n"
            )
            await asyncio.get_running_loop().sock_sendall(connection, request.encode())
            await asyncio.sleep(1)


@pytest.mark.parametrize("form", ["tar", "zip"])
async def test_a_large_directory_is_packed_in_bounded_memory(server, box, home, size, form):
    each = size // FILES * MIB
    script = f"mkdir many; for i in $(seq {FILES}); do head -c {each} /dev/urandom > many/$i; done"
    await server.admin.post(f"{box}/exec", {"cmd": ["sh", "-c", script]})
    with grows_less_than(server, 48):
        taken = await download(server, f"{box}/archive?path={home}/many&format={form}")
    assert taken >= size * MIB


async def test_a_large_archive_is_unpacked_in_bounded_memory(server, box, home, size):
    async def packed():
        for number in range(FILES):
            info = tarfile.TarInfo(f"file-{number}")
            info.size = size // FILES * MIB
            yield info.tobuf()
            async for piece in pieces(size // FILES):
                yield piece
        yield b"\0" * 10240

    with grows_less_than(server, 48):
        answer = await server.admin.call("PUT", f"{box}/archive?path={home}/big", data=packed())
    assert answer.body == {"files": FILES, "directories": 0, "links": 0, "bytes": size * MIB}
