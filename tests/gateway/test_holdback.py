"""What a program learns from when an answer reaches it: nothing of a value that was put in.

Issue: the redactor is an oracle. Guesses are echoed by a real server, through a gateway that looks
into TLS, and come back in the same pieces at the same moments whether they are right or wrong.
"""

import asyncio
import ssl
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paddock.gateway.fence import Fence
from paddock.gateway.holdback import RELEASE_S
from paddock.gateway.inbound import Proxied
from paddock.gateway.journal import Journal
from paddock.gateway.minting import Mint
from paddock.gateway.outside import Outside, trusting
from paddock.gateway.protocol import Credential, RuleText
from tests.upstreams import certificate

pytestmark = pytest.mark.timeout(60)
HOST = "a.example"
VALUE = "sk-live-0123456789abcdefghijKLMNOPQRSTUV"
OTHER = "tok-of-another-host-9876543210zyxwvutsrq"
SHOWN = "pdk-KEY-0123456789abcdef0123456789abcdef"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAA\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"


@dataclass
class World:
    fence: Fence
    gate: int
    port: int = 0
    ends: list[asyncio.StreamWriter] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    answered: bytes = b""
    """The head of the last answer."""

    async def ask(self, line: str, headers: str = "") -> Streams:
        """A request, and the head of its answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gate)
        self.ends.append(writer)
        place = f"{HOST}:{self.port}"
        writer.write(f"CONNECT {place} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        await writer.start_tls(context, server_hostname=HOST)
        writer.write(f"{line} HTTP/1.1\r\nHost: {place}\r\n{headers}\r\n".encode())
        self.answered = await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ends.append(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert f"Bearer {VALUE}" in head
            if "Upgrade" in head:
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")
                await _echo_frames(reader, writer)
            elif "chunked" in head:
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while data := await reader.read(65536):
                    writer.write(data)
            else:
                await self._large(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()

    async def _large(self, writer: asyncio.StreamWriter) -> None:
        """More than fits on the way, then half of the value, and the rest when it is asked for."""
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        writer.write(b"x" * (16 << 20) + VALUE[:20].encode())
        await self.more.wait()
        await asyncio.sleep(RELEASE_S / 4)  # as long as it takes to hear of each other
        writer.write(VALUE[20:].encode() + b"x" * 1000)
        writer.close()


async def _echo_frames(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while head := await reader.readexactly(2):
        size = head[1] & 0x7F
        if size == 126:
            size = int.from_bytes(await reader.readexactly(2), "big")
        await reader.readexactly(4)  # the mask, all zeros here
        writer.write(frame(await reader.readexactly(size)))


def frame(payload: bytes, *, masked: bool = False) -> bytes:
    mask, key = (0x80, bytes(4)) if masked else (0, b"")
    size = len(payload)
    length = bytes([mask | 126]) + size.to_bytes(2, "big") if size > 125 else bytes([mask | size])
    return b"\x82" + length + key + payload


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    loop, outside = asyncio.get_running_loop(), Outside()
    both = tmp_path / "both.pem"
    both.write_bytes(certificate((HOST,)))
    outside.hosts, outside.trust = {HOST: "127.0.0.1"}, trusting(both.read_text())
    fence = Fence("sbx_1", outside, Journal())
    fence.desk.mint = Mint(both.read_bytes(), both.read_bytes())

    def client() -> asyncio.Protocol:
        return Proxied(fence).relay.client_side()

    gate = await loop.create_server(client, "127.0.0.1", 0)
    made = World(fence, gate.sockets[0].getsockname()[1])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    there = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    made.port = there.sockets[0].getsockname()[1]
    fence.set_rules([RuleText(f"{HOST}:*", "test"), RuleText("127.0.0.1/32:*", "test")])
    bound = [f"{HOST}:{made.port}"]
    header, form = "Authorization", "Bearer {}"
    key = Credential("KEY", SHOWN, bound, "header", value=VALUE, header=header, format=form)
    other = Credential("OTHER", "pdk-OTHER", ["b.example"], "placeholder", value=OTHER)
    fence.desk.take([key, other], "1")
    try:
        async with asyncio.timeout(50):
            yield made
    finally:
        made.more.set()
        fence.close()
        gate.close()
        there.close()
        for end in made.ends:
            end.transport.abort()
        while fence.busy:
            await asyncio.sleep(0.01)


@pytest.mark.proves("K9")
async def test_every_frame_of_a_websocket_comes_back_at_once_whatever_it_ends_with(world: World):
    reader, writer = await world.ask("GET /echo", UPGRADE)
    guesses = [VALUE[:size] for size in (1, 8, 20, 39)] + [OTHER[:20], OTHER]
    for guess in guesses:
        for said in (guess, guess[:-1] + "~", "~" * len(guess)):
            writer.write(frame(said.encode(), masked=True))
            async with asyncio.timeout(RELEASE_S * 5):
                assert await reader.readexactly(2 + len(said)) == frame(said.encode())
    writer.write(frame(VALUE.encode(), masked=True))
    assert await reader.readexactly(2 + len(VALUE)) == frame(SHOWN.encode())


@pytest.mark.parametrize("protocol", ["h2c", "TLS/1.2", "websocket, h2c", "own"])
async def test_no_other_protocol_follows_http_where_a_secret_is_bound(world: World, protocol: str):
    asked = f"Connection: Upgrade\r\nUpgrade: {protocol}\r\n"
    reader, _ = await world.ask("GET /echo", asked)
    assert world.answered.startswith(b"HTTP/1.1 403 ")
    assert b"no upgrade but WebSocket" in await reader.read()


@pytest.mark.proves("K9")
async def test_chunks_come_back_in_the_same_pieces_for_right_and_for_wrong_guesses(world: World):
    async def pattern(guess: str) -> tuple[int, ...]:
        reader, writer = await world.ask("POST /echo", CHUNKED)
        sizes, got = [], b""
        for number in range(5):
            if number < 4:
                writer.write(chunk(b"-" * 300 + guess.encode()))
            # What is left at last comes after a while, unasked.
            async with asyncio.timeout(RELEASE_S * 10):
                sizes.append(int(await reader.readuntil(b"\r\n"), 16))
                got += (await reader.readexactly(sizes[-1] + 2))[:-2]
        assert got == (b"-" * 300 + guess.encode()) * 4
        return tuple(sizes)

    guesses = (VALUE[:20], "~" * 20, OTHER[:20], VALUE[:19] + "~")
    patterns = await asyncio.gather(*map(pattern, guesses))
    assert len(set(patterns)) == 1
    assert all(patterns[0])


async def test_lines_come_back_at_once(world: World):
    reader, writer = await world.ask("POST /echo", CHUNKED)
    for said in (b"data: tick\n\n", VALUE[:20].encode() + b"\n"):
        writer.write(chunk(said))
        async with asyncio.timeout(RELEASE_S * 5):
            assert await reader.readexactly(len(chunk(said))) == chunk(said)


@pytest.mark.proves("K9")
async def test_a_client_that_stops_reading_does_not_cut_a_value_in_two(world: World):
    reader, _ = await world.ask("GET /large")
    await asyncio.sleep(RELEASE_S * 1.5)
    world.more.set()
    got = await reader.read(-1)
    assert VALUE[20:].encode() not in got
    assert len(got) == (16 << 20) + len(SHOWN) + 1000
    assert SHOWN.encode() in got


@pytest.mark.alone
@pytest.mark.proves("K9")
async def test_how_long_an_echo_takes_tells_nothing_of_a_guess(world: World):
    """Of two guesses, repeated so that a search would add up, each is the later as often as not."""
    reader, writer = await world.ask("GET /echo", UPGRADE)
    right, wrong = VALUE[:-1], VALUE[:-2] + "~"
    times: dict[str, list[float]] = {right: [], wrong: []}
    for number in range(400):
        for guess in (right, wrong) if number % 2 else (wrong, right):
            said = (guess * 1600)[:60_000].encode()
            began = time.perf_counter()
            writer.write(frame(said, masked=True))
            await reader.readexactly(len(frame(said)))
            times[guess].append(time.perf_counter() - began)
    later = sum(a > b for a, b in zip(times[right], times[wrong], strict=True))
    assert 120 < later < 280, (later, *map(statistics.median, times.values()))
