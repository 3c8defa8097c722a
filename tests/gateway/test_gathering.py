"""Requests to models that are read before they are sent, through a fence, over real sockets."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.gateway.fence import Fence
from paddock.gateway.inbound import Proxied
from paddock.gateway.journal import Journal
from paddock.gateway.outside import Outside, trusting
from paddock.gateway.protocol import Credential, RuleText
from paddock.gateway.room import MOST_OF_REQUEST, MOST_OF_SANDBOX, Patience, Share
from tests.upstreams import certificate

pytestmark = [pytest.mark.timeout(90), pytest.mark.proves("K5")]
HOST = "a.example"
INSIDE = "own.models.paddock.internal"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
MIB = 1 << 20


@dataclass
class World:
    fence: Fence
    gate: int
    route: Credential
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    """Until then the model takes nothing beyond a handshake."""
    got: list[bytes] = field(default_factory=list)
    ends: list[asyncio.StreamWriter] = field(default_factory=list)

    def give(self, *, limit: float | None, dialect: str = "openai") -> None:
        self.fence.desk.take([replace(self.route, limit=limit, dialect=dialect)], f"{limit}")

    @property
    def taken(self) -> int:
        return self.fence.desk.whole.taken

    async def ask(self, size: int, body: bytes, path: str = "/v1/chat/completions") -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gate)
        self.ends.append(writer)
        line = f"POST http://{INSIDE}{path} HTTP/1.1\r\nHost: {INSIDE}\r\n"
        writer.write(f"{line}Content-Length: {size}\r\n\r\n".encode() + body)
        return reader, writer

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ends.append(writer)
        try:
            await self.reads.wait()
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                self.got.append(await reader.readexactly(size))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    loop, outside = asyncio.get_running_loop(), Outside()
    both = tmp_path / "both.pem"
    both.write_bytes(certificate((HOST,)))
    outside.hosts, outside.trust = {HOST: "127.0.0.1"}, trusting(both.read_text())
    fence = Fence("sbx_1", outside, Journal())

    def client() -> asyncio.Protocol:
        return Proxied(fence).relay.client_side()

    gate = await loop.create_server(client, "127.0.0.1", 0)
    made = World(fence, gate.sockets[0].getsockname()[1], Credential("M", "", [], "model"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    there = await asyncio.start_server(made.answer, "127.0.0.1", 0, ssl=context)
    port = there.sockets[0].getsockname()[1]
    made.route = replace(
        made.route, hosts=[f"{HOST}:{port}"], value="sk-real", route="own", account="a/sandbox 1"
    )
    fence.set_rules([RuleText(f"127.0.0.1/32:{port}", "test")])
    try:
        yield made
    finally:
        made.reads.set()
        fence.close()
        gate.close()
        there.close()
        for end in made.ends:
            end.transport.abort()
        await until(lambda: not fence.busy)
        assert made.taken == 0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def said(streams: Streams) -> tuple[int, dict]:
    """The status, and what the error is."""
    async with asyncio.timeout(60):
        head = await streams[0].readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        body = json.loads(await streams[0].readexactly(size))
    return int(head.split()[1]), body.get("error", {})


@pytest.mark.parametrize(
    ("dialect", "path", "kind"),
    [
        ("openai", "/v1/chat/completions", ("type", "timeout")),
        ("anthropic", "/v1/messages", ("type", "timeout_error")),
        ("gemini", "/v1beta/models/g:generateContent", ("status", "DEADLINE_EXCEEDED")),
    ],
)
async def test_a_request_that_stops_before_its_end_is_not_waited_for(
    world: World, dialect: str, path: str, kind: tuple[str, str]
):
    world.fence.desk.patience = Patience(silent_s=0.3)
    world.give(limit=1.0, dialect=dialect)
    asked = await world.ask(MIB, b"x" * (MIB - 1), path)
    await until(lambda: world.taken == MIB - 1)
    status, error = await said(asked)
    assert (status, error[kind[0]]) == (408, kind[1])
    assert f"{MIB - 1} bytes of its body have come" in error["message"]
    assert "nothing more for 0.3 seconds" in error["message"]
    assert world.taken == 0
    assert await asked[0].read() == b""
    assert world.got == []


@pytest.mark.parametrize("limit", [1.0, None])
async def test_a_request_that_comes_byte_by_byte_has_a_while_in_all(
    world: World, limit: float | None
):
    world.fence.desk.patience = Patience(silent_s=60, whole_s=0.5)
    world.give(limit=limit)
    asked = await world.ask(1000, b"{")

    async def trickle() -> None:
        while True:
            asked[1].write(b" ")
            await asyncio.sleep(0.02)

    slow = asyncio.create_task(trickle())
    try:
        status, error = await said(asked)
    finally:
        slow.cancel()
    assert (status, error["code"]) == (408, "request_timeout")
    assert "the rest not within 0.5 seconds" in error["message"]


async def test_one_that_comes_in_time_is_answered_however_often_it_pauses(world: World):
    world.fence.desk.patience = Patience(silent_s=3.0)
    world.give(limit=1.0)
    world.reads.set()
    asked = await world.ask(6, b"")
    for byte in b"{    }":
        await asyncio.sleep(0.6)
        asked[1].write(bytes([byte]))
    assert (await said(asked))[0] == 200
    assert world.got == [b"{    }"]
    # So it is with the next on the same connection.
    world.fence.desk.patience = Patience(silent_s=0.3)
    asked[1].write(f"POST /v1/chat/completions HTTP/1.1\r\nHost: {INSIDE}\r\n".encode())
    asked[1].write(b"Content-Length: 2\r\n\r\n{")
    assert (await said(asked))[0] == 408


async def test_what_is_read_counts_until_the_model_has_taken_it(world: World):
    world.give(limit=100_000.0)
    body = b'{"max_tokens": 1, "pad": "' + b"x" * (16 * MIB) + b'"}'
    asked = await world.ask(len(body), body)
    await until(lambda: world.fence.desk.ledger.reserved("a/sandbox 1") > 0)
    (connection,) = world.fence._connections
    await until(lambda: connection.relay.is_joined)
    assert connection.relay.outbox.size > len(body)
    assert world.taken == connection.relay.outbox.size
    world.reads.set()
    assert (await said(asked))[0] == 200
    assert (world.got, world.taken) == ([body], 0)


async def test_many_complete_requests_that_are_not_sent_yet_stay_within_the_bound(world: World):
    """A host that answers no handshake: nothing of them goes anywhere."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as mute:
        port = mute.getsockname()[1]
        world.route = replace(world.route, hosts=[f"{HOST}:{port}"])
        world.fence.set_rules([RuleText(f"127.0.0.1/32:{port}", "test")])
        world.give(limit=None)
        body = b"{" + b" " * (MIB - 2) + b"}"
        for _ in range(70):
            await world.ask(MIB, body)

        def kept() -> list[int]:
            return [each.relay.outbox.size for each in world.fence._connections]

        await until(lambda: len([each for each in kept() if each]) == 70)
        assert sum(kept()) == world.taken
        # Those for which there was no room go through as they come, and are not read on.
        whole = [each for each in kept() if each >= MIB]
        assert MOST_OF_SANDBOX - 2 * MIB < sum(whole) < MOST_OF_SANDBOX + MIB
        assert max(each for each in kept() if each < MIB) < MIB


async def test_a_sandbox_without_room_is_told_to_try_again_and_has_it_back(world: World):
    world.give(limit=1000.0)
    half = [await world.ask(MOST_OF_REQUEST, b"x" * (MOST_OF_REQUEST - 5)) for _ in range(2)]
    await until(lambda: world.taken == MOST_OF_SANDBOX - 10)
    status, error = await said(await world.ask(13, b"{" + b" " * 11 + b"}"))
    assert (status, error["code"], error["type"]) == (429, "sandbox_full", "rate_limit_error")
    assert "requests of 64 MiB from this sandbox" in error["message"]
    assert "spend limit" not in error["message"]
    world.reads.set()
    # Without a limit it need not be read: it goes on as it comes.
    world.give(limit=None)
    assert (await said(await world.ask(13, b"{" + b" " * 11 + b"}")))[0] == 200
    world.give(limit=1000.0)
    half[0][1].transport.abort()
    await until(lambda: world.taken <= MOST_OF_REQUEST)
    assert (await said(await world.ask(13, b"{" + b" " * 11 + b"}")))[0] == 200
    half[1][1].close()
    await until(lambda: world.taken == 0)


async def test_others_that_have_the_room_leave_some_and_who_wants_more_is_told(world: World):
    world.give(limit=1000.0)
    world.reads.set()
    whole = world.fence.desk.whole
    others = [Share(whole.of_team(team).of_sandbox()) for team in "bcd" for _ in range(10)]
    for each in others:
        each.hold(next(size for size in (64 * MIB >> n for n in range(40)) if not each.lacks(size)))
    body = b"{" + b" " * (40 * MIB) + b"}"
    assert (await said(await world.ask(MIB, body[: MIB - 1] + b"}")))[0] == 200
    status, error = await said(await world.ask(32 * MIB, body[: 32 * MIB - 1]))
    assert (status, error["code"]) == (429, "gateway_full")
    assert "requests of other sandboxes" in error["message"]
    for each in others:
        each.hold(0)
    status, error = await said(await world.ask(len(body), body))
    assert (status, error["code"]) == (413, "spend_not_counted")
