"""Requests to models that are read before they are sent, through a fence, over real sockets."""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.domain.broker.models import Price, Prices
from paddock.gateway.fence import Fence
from paddock.gateway.inbound import Proxied
from paddock.gateway.journal import Journal
from paddock.gateway.ledger import Ledger
from paddock.gateway.outside import Outside, trusting
from paddock.gateway.protocol import Credential, RuleText
from paddock.gateway.room import MOST_OF_REQUEST, MOST_OF_SANDBOX, Patience, Share
from tests.upstreams import certificate

pytestmark = pytest.mark.timeout(90)
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
    lines: list[bytes] = field(default_factory=list)
    says: Callable[[bytes, asyncio.StreamWriter], Awaitable[None]] | None = None
    """How the model answers a request, by its body."""

    @property
    def ledger(self) -> Ledger:
        return self.fence.desk.ledger

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
                self.lines.append(head.partition(b"\r")[0])
                size = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
                self.got.append(await reader.readexactly(int(size or 0)))
                if self.says is not None:
                    await self.says(self.got[-1], writer)
                    continue
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
    world.give(limit=100.0)
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


ACCOUNT = "a/sandbox 1"
USAGE = {"prompt_tokens": 2000, "completion_tokens": 800}
COST = (2000 * 10 + 800 * 10) / 1e6


def prices(world: World) -> None:
    world.ledger.prices = Prices({"*": Price(10, 10, 1, 10)})


def event(said: object) -> bytes:
    data = b"data: " + (json.dumps(said).encode() if said != "[DONE]" else b"[DONE]") + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
WORD = {"model": "gpt-5", "choices": [{"delta": {"content": "word"}}], "usage": None}


async def chat(body: bytes, writer: asyncio.StreamWriter) -> None:
    """As an API does: it says what was taken only to who asks for it."""
    writer.write(STREAM + event(WORD) * 3)
    if json.loads(body).get("stream_options", {}).get("include_usage"):
        writer.write(event({"model": "gpt-5", "choices": [], "usage": USAGE}))
    writer.write(event("[DONE]") + LAST)


async def streamed(streams: Streams) -> list[bytes]:
    async with asyncio.timeout(60):
        head = await streams[0].readuntil(b"\r\n\r\n")
        assert b" 200 " in head, head
        said = await streams[0].readuntil(LAST)
    pieces = said.split(b"\r\n")
    return b"".join(pieces[1:-3:2]).split(b"\n\n")


@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"other": 1}])
async def test_a_chat_that_streams_is_asked_for_its_usage_and_the_client_is_not_told(
    world: World, options: dict | None
):
    prices(world)
    world.give(limit=1.0)
    world.says = chat
    world.reads.set()
    asked = {"model": "gpt-5", "stream": True, "n": 10**20, "stream_options": options}
    body = json.dumps(asked).encode()
    pieces = await streamed(await world.ask(len(body), body))
    assert pieces == [b"data: " + json.dumps(WORD).encode()] * 3 + [b"data: [DONE]", b""]
    sent = json.loads(world.got[0])
    assert sent == {**asked, "stream_options": {**(options or {}), "include_usage": True}}
    await until(lambda: not world.ledger.reserved(ACCOUNT))
    assert world.ledger.spent(ACCOUNT) == pytest.approx(COST)


async def test_who_asks_for_the_usage_gets_it_and_without_a_limit_nothing_is_changed(world: World):
    prices(world)
    world.says = chat
    world.reads.set()
    wants = b'{"model": "gpt-5", "stream": true, "stream_options": {"include_usage": true}}'
    for limit, body, count in ((1.0, wants, 6), (None, wants, 6), (None, b'{"stream": true}', 5)):
        world.give(limit=limit)
        pieces = await streamed(await world.ask(len(body), body))
        assert len(pieces) == count
        assert world.got[-1] == body


def reset(writer: asyncio.StreamWriter) -> None:
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


@pytest.mark.parametrize("way", ["reset", "end"])
async def test_an_answer_is_read_to_its_usage_also_when_the_client_has_gone(world: World, way: str):
    prices(world)
    world.give(limit=1.0)
    gone = asyncio.Event()

    async def answer(_body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + event({"type": "response.output_text.done", "text": "all of it"}))
        await gone.wait()
        for _ in range(20):
            writer.write(event({"type": "response.output_text.delta", "delta": "x" * 20_000}))
            await writer.drain()
            await asyncio.sleep(0.01)
        done = {"model": "gpt-5", "usage": {"input_tokens": 2000, "output_tokens": 800}}
        writer.write(event({"type": "response.completed", "response": done}) + LAST)

    world.says = answer
    world.reads.set()
    body = b'{"model": "gpt-5", "stream": true, "max_output_tokens": 5000}'
    reader, writer = await world.ask(len(body), body, "/v1/responses")
    async with asyncio.timeout(60):
        await reader.readuntil(b"output_text.done")
    reset(writer) if way == "reset" else writer.close()
    (connection,) = world.fence._connections
    await until(lambda: connection.relay.is_over or connection.relay.client_ended)
    gone.set()
    await until(lambda: not world.fence.busy)
    assert world.ledger.spent(ACCOUNT) == pytest.approx(COST)
    assert not world.ledger.reserved(ACCOUNT)


async def test_who_has_gone_holds_nothing_without_a_limit_and_nothing_beyond_the_fence(
    world: World,
):
    prices(world)
    stuck = asyncio.Event()

    async def answer(_body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + event(WORD))
        await stuck.wait()

    world.says = answer
    world.reads.set()
    body = b'{"model": "gpt-5", "stream": true, "max_tokens": 5000}'
    try:
        for limit in (None, 1.0):
            world.give(limit=limit)
            reader, writer = await world.ask(len(body), body)
            async with asyncio.timeout(60):
                await reader.readuntil(b"word")
            (relay,) = (each.relay for each in world.fence._connections)
            reset(writer)
            await until(lambda relay=relay: relay.is_over)
            assert world.fence.busy == (limit is not None)
        world.fence.close()
        await until(lambda: not world.fence.busy)
    finally:
        stuck.set()
    # Of the second all that it might have cost: nothing has said that it was less.
    most = (-(-len(body) // 3) + 5000) * 10 / 1e6
    assert most <= world.ledger.spent(ACCOUNT) < most + 0.001


async def test_what_is_stored_elsewhere_goes_one_at_a_time_where_a_limit_is_near(world: World):
    prices(world)
    world.give(limit=1.0)
    answers = asyncio.Event()

    async def answer(_body: bytes, writer: asyncio.StreamWriter) -> None:
        await answers.wait()
        said = json.dumps({"model": "m", "usage": {"input_tokens": 60_000}}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))

    world.says = answer
    world.reads.set()
    body = b'{"model": "m", "max_output_tokens": 16, "previous_response_id": "r1"}'
    asked = [await world.ask(len(body), body, "/v1/responses") for _ in range(5)]
    await until(lambda: len(world.ledger._waiting.get(ACCOUNT, ())) == 4 and bool(world.got))
    assert len(world.got) == 1
    answers.set()
    statuses = sorted([(await said(each))[0] for each in asked])
    # Two fit, the second was alone as well; then all is spent.
    assert statuses == [200, 200, 403, 403, 403]
    assert world.ledger.spent(ACCOUNT) == pytest.approx(1.2)


async def test_a_request_behind_one_that_waits_does_not_overtake_it(world: World):
    prices(world)
    world.give(limit=0.5)
    world.reads.set()
    first = world.ledger.reserve(ACCOUNT, 0.5, 0.3)
    assert first is not None
    body = b'{"model": "m", "max_tokens": 30000}'
    reader, writer = await world.ask(
        len(body), body + f"GET /v1/models HTTP/1.1\r\nHost: {INSIDE}\r\n\r\n".encode()
    )
    status, error = await said((reader, writer))
    assert (status, world.lines) == (400, [])
    assert "still waits" in error["message"]
    assert world.ledger.reserved(ACCOUNT) == pytest.approx(0.3)
    world.ledger.settle(first, 0.1)
    await until(lambda: not world.fence.busy)
    assert (world.ledger.reserved(ACCOUNT), world.ledger.spent(ACCOUNT)) == (0, 0.1)
    assert world.lines == []


@pytest.mark.proves("K5")
@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions#/embeddings", "/v1/embeddings;/../chat/completions", "/v1/x;/responses"],
)
async def test_a_path_that_could_mean_another_goes_nowhere_with_a_key(world: World, path: str):
    world.give(limit=1.0)
    world.reads.set()
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gate)
    world.ends.append(writer)
    writer.write(f"CONNECT {INSIDE}:80 HTTP/1.1\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    line = f"POST {path} HTTP/1.1\r\nHost: {INSIDE}\r\n"
    writer.write(f"{line}Content-Length: 2\r\n\r\n{{}}".encode())
    assert (await said((reader, writer)))[0] == 403
    assert world.lines == []
