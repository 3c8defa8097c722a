"""Clients that send the beginning of a connection byte by byte (slow loris)."""

import asyncio
from itertools import cycle

import pytest

from paddock.gateway.room import Patience
from tests.gateway.test_connection import World, world  # noqa: F401 - a fixture by name

pytestmark = pytest.mark.timeout(20)
HEAD_S = 0.3
REQUEST = b"GET / HTTP/1.1\r\nHost: a.example:PORT\r\n"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
BEGINNINGS = {
    "a request of a proxy's client": b"CONNECT a.example:PORT HTTP/1.1\r\n",
    "a first line": b"",
    "a head": REQUEST,
    "a second head": REQUEST + b"\r\n" + REQUEST,
    "a ClientHello": HELLO,
}


def request(to: World) -> bytes:
    return REQUEST.replace(b"PORT", b"%d" % to.port)


async def trickled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Send a byte of a header every 50 ms until the other side ends it; return its answer."""
    answer = asyncio.ensure_future(reader.read())
    for byte in cycle(b"X-Slow: yes\r\n"):
        writer.write(bytes((byte,)))
        if (await asyncio.wait({answer}, timeout=0.05))[0]:
            break
    try:
        return await answer
    except ConnectionError:
        return b""


@pytest.mark.parametrize("beginning", BEGINNINGS)
async def test_a_beginning_that_comes_byte_by_byte_is_cut_off(
    world: World,  # noqa: F811 - the fixture
    beginning: str,
):
    world.fence.desk.patience = Patience(head_s=HEAD_S)
    world.rules("a.example:{port}")
    if beginning == "a request of a proxy's client":
        reader, writer = await asyncio.open_connection("127.0.0.1", world.gate)
        world.ends.append(writer)
    else:
        (reader, writer), _ = await world.opened()
    writer.write(BEGINNINGS[beginning].replace(b"PORT", b"%d" % world.port))
    started = asyncio.get_running_loop().time()
    async with asyncio.timeout(10):
        await trickled(reader, writer)
    assert asyncio.get_running_loop().time() - started >= HEAD_S / 2
    while world.fence.busy:
        await asyncio.sleep(0.01)


async def test_who_sends_a_head_slowly_is_told_so(world: World):  # noqa: F811 - the fixture
    world.fence.desk.patience = Patience(head_s=HEAD_S)
    world.rules("a.example:{port}")
    (reader, writer), _ = await world.opened()
    writer.write(request(world))
    said = await trickled(reader, writer)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"not complete after 0.3 s" in said


async def test_silence_before_and_between_requests_is_not_cut_off(
    world: World,  # noqa: F811 - the fixture
):
    world.fence.desk.patience = Patience(head_s=0.2)
    world.rules("a.example:{port}")
    (reader, writer), outer = await world.opened()
    for _ in range(2):
        await asyncio.sleep(0.5)
        writer.write(request(world) + b"\r\n")
        await outer[0].readuntil(b"\r\n\r\n")
        outer[1].write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert (await reader.readuntil(b"ok")).endswith(b"ok")


async def test_a_body_may_come_slowly_once_its_head_is_complete(
    world: World,  # noqa: F811 - the fixture
):
    world.fence.desk.patience = Patience(head_s=0.2)
    world.rules("a.example:{port}")
    (_, writer), outer = await world.opened()
    writer.write(request(world) + b"Content-Length: 6\r\n\r\n")
    await outer[0].readuntil(b"\r\n\r\n")
    for byte in b"slowly":
        writer.write(bytes((byte,)))
        await asyncio.sleep(0.1)
    assert await outer[0].readexactly(6) == b"slowly"
