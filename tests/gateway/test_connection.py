"""Connections through a fence of one's own, over real sockets, while its rules change."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from paddock.gateway.fence import Fence
from paddock.gateway.inbound import Proxied
from paddock.gateway.journal import Journal
from paddock.gateway.lookups import Lookups
from paddock.gateway.outside import Outside
from paddock.gateway.protocol import Credential, RuleText

pytestmark = pytest.mark.timeout(20)
HOST = "a.example"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class World:
    fence: Fence
    gate: int
    port: int
    met: "asyncio.Queue[Streams]" = field(default_factory=asyncio.Queue)
    """Whoever was connected to outside."""
    ends: list[asyncio.StreamWriter] = field(default_factory=list)

    def rules(self, *texts: str, ask_s: float = 0.0) -> None:
        opened = f"127.0.0.1/32:{self.port}"
        given = [RuleText(text.format(port=self.port), "test") for text in (*texts, opened)]
        self.fence.set_rules(given, ask_s=ask_s)

    async def tunnel(self) -> Streams:
        """Asked for, not answered yet."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gate)
        self.ends.append(writer)
        writer.write(f"CONNECT {HOST}:{self.port} HTTP/1.1\r\n\r\n".encode())
        return reader, writer

    async def opened(self) -> tuple[Streams, Streams]:
        """A tunnel, seen from both ends."""
        inside = await self.tunnel()
        assert b" 200 " in await inside[0].readuntil(b"\r\n\r\n")
        return inside, await self.met.get()

    def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ends.append(writer)
        self.met.put_nowait((reader, writer))

    def events(self) -> list[tuple[str, bool, int]]:
        self.fence.flush()
        told = self.fence.journal.drain(0).flows
        return [(flow.host, flow.allowed, flow.connections) for flow in told]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with _world() as made, asyncio.timeout(15):
        yield made


@asynccontextmanager
async def _world() -> AsyncIterator[World]:
    loop, outside = asyncio.get_running_loop(), Outside()
    outside.hosts = {HOST: "127.0.0.1"}
    fence = Fence("sbx_1", outside, Journal())

    def client() -> asyncio.Protocol:
        return Proxied(fence).relay.client_side()

    gate = await loop.create_server(client, "127.0.0.1", 0)
    made = World(fence, gate.sockets[0].getsockname()[1], 0)
    there = await asyncio.start_server(made.meet, "127.0.0.1", 0)
    made.port = there.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        fence.close()
        gate.close()
        there.close()
        for end in made.ends:
            end.transport.abort()
        await asyncio.sleep(0.05)


async def test_a_tunnel_that_a_rule_has_released_is_left_alone_by_later_looks(world: World):
    world.rules(ask_s=30.0)
    inside = await world.tunnel()
    while not world.fence.asking.held:
        await asyncio.sleep(0.01)
    world.rules("a.example:{port}", ask_s=30.0)
    assert b" 200 " in await inside[0].readuntil(b"\r\n\r\n")
    outer = await world.met.get()
    assert world.fence.asking.told() == []
    inside[1].write(b"\0binary")
    assert await outer[0].readexactly(7) == b"\0binary"
    world.rules("a.example:{port}", ask_s=30.0)
    inside[1].write(b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n")
    assert await outer[0].readuntil(b"\r\n\r\n") == b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n"


async def test_who_only_listens_is_told_of_and_cut_off(world: World):
    world.rules("a.example:{port}")
    inside, outer = await world.opened()
    outer[1].write(b"welcome")
    assert await inside[0].readexactly(7) == b"welcome"
    assert world.events() == [(HOST, True, 1)]
    world.rules()
    with pytest.raises(ConnectionError):
        await inside[0].read()


class _Unknown(Lookups):
    """A resolver that knows no name."""

    async def addresses_of(self, host: str, turns: asyncio.Semaphore) -> list[str]:
        raise OSError(-2, "Name or service not known")


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("nowhere.example", "the name nowhere.example is not known outside"),
        (HOST, "could not be connected to"),
    ],
)
async def test_an_allowed_place_that_cannot_be_reached_is_told_with_the_reason(
    world: World, host: str, why: str
):
    world.fence.outside._lookups = _Unknown()
    world.rules(f"{host}:1", "127.0.0.1/32:1")
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gate)
    world.ends.append(writer)
    writer.write(f"CONNECT {host}:1 HTTP/1.1\r\n\r\n".encode())
    assert b" 502 " in await reader.readuntil(b"\r\n\r\n")
    world.fence.flush()
    flows = world.fence.journal.drain(0).flows
    assert [(flow.allowed, flow.rule, flow.connections) for flow in flows] == [
        (True, f"{host}:1", 1)
    ]
    assert why in flows[0].why


@pytest.mark.proves("P16")
async def test_an_address_that_is_denied_while_it_is_connected_to_is_not_joined(world: World):
    connected, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Outside):
        async def dial(self, *place: Any, **how: Any) -> Any:
            found = await super().dial(*place, **how)
            connected.set()
            await go_on.wait()
            return found

    slow = Slow()
    slow.hosts = world.fence.outside.hosts
    world.fence.outside = slow
    world.rules("a.example:{port}", "127.0.0.1/32:{port}")
    inside = await world.tunnel()
    await connected.wait()
    world.rules("a.example:{port}", "!127.0.0.0/8:*")
    go_on.set()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await inside[0].readuntil(b"\r\n\r\n")


@pytest.mark.proves("P16")
async def test_what_is_said_late_is_judged_by_the_rules_of_then(world: World):
    request = "GET http://a.example:{port}/x"
    world.rules(request, "a.example:{port}")
    inside = await world.tunnel()
    assert b" 200 " in await inside[0].readuntil(b"\r\n\r\n")
    world.rules(request)
    with pytest.raises(ConnectionError):
        await _said(inside, b"\0binary")


async def _said(inside: Streams, data: bytes) -> bytes:
    inside[1].write(data)
    async with asyncio.timeout(5):
        return await inside[0].read()


@pytest.mark.proves("P16")
@pytest.mark.parametrize(
    "line",
    [b"POST /" + b"x" * 9000 + b" HTTP/1.1", b"POST\t/x\tHTTP/1.1", b"POST /x", b"POST\x0b/x"],
)
async def test_no_odd_request_line_goes_around_rules_about_requests(world: World, line: bytes):
    world.rules("!POST http://a.example:{port}/**", "a.example:{port}")
    inside, outer = await world.opened()
    head = line + f"\r\nHost: {HOST}:{world.port}\r\n\r\n".encode()
    said = await _said(inside, head)
    assert said.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ")), said
    assert await outer[0].read() == b""


UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: a.example:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
)


async def test_what_follows_a_request_to_upgrade_waits_without_filling_memory(world: World):
    world.rules("a.example:{port}")
    inside, outer = await world.opened()
    inside[1].write(UPGRADE % world.port)
    await outer[0].readuntil(b"\r\n\r\n")
    sent = b"x" * (32 << 20)
    inside[1].write(sent)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(inside[1].drain(), 1)
    (connection,) = world.fence._connections
    assert len(connection._held) < 1 << 20
    outer[1].write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
    assert await outer[0].readexactly(len(sent)) == sent


ROUTE = Credential(
    "MODEL",
    "pdk-MODEL-0",
    ["a.example"],
    "model",
    value="sk-real",
    route="own",
    dialect="openai",
    account="team/one",
)


async def test_a_model_route_has_no_websocket_that_nobody_counts(world: World):
    world.fence.desk.take([ROUTE], "1")
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gate)
    world.ends.append(writer)
    name = b"own.models.paddock.internal"
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    target = b"http://" + name + b"/v1/realtime"
    writer.write(b"GET " + target + b" HTTP/1.1\r\nHost: " + name + b"\r\n" + upgrade)
    said = await reader.read()
    assert said.startswith(b"HTTP/1.1 403 ")
    assert b"WebSocket cannot be counted" in said
