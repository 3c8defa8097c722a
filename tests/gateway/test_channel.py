"""Messages of any size between a control plane and a gateway."""

import asyncio
import os
import socket
import struct
from collections.abc import Iterator

import msgspec
import pytest

from paddock.gateway import protocol
from paddock.gateway.protocol import (
    Attach,
    Channel,
    Credential,
    Done,
    Failed,
    Hello,
    Here,
    RuleText,
    SetCredentials,
)

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        yield one, other


async def test_all_that_may_be_lent_to_a_sandbox_is_told_at_once_and_answered(ends):
    one, other = map(Channel, ends)
    value = "\n" * (64 << 10)
    lent = [Credential(f"s{n}", f"p{n}", ["a.example"], "header", value) for n in range(128)]
    said = SetCredentials("sandbox", "mark", lent)
    _, (heard, sockets) = await asyncio.gather(one.send(said), other.receive())
    assert (heard == said, sockets) == (True, [])
    marks = {f"sandbox-{n}": "m" * 64 for n in range(20_000)}
    here = Here(protocol.VERSION, "id", list(marks), marks)
    _, (heard, _) = await asyncio.gather(other.send(here), one.receive())
    assert heard == here
    await one.send(Done())
    assert await other.receive() == (Done(), [])


@pytest.mark.parametrize("more", [-1, 0, 1, protocol.PIECE, protocol.PIECE + 1])
async def test_no_byte_is_lost_where_a_message_is_taken_apart(ends, more):
    one, other = map(Channel, ends)
    said = Failed("x" * (protocol.PIECE + more - len(msgspec.json.encode(Failed("")))))
    _, heard = await asyncio.gather(one.send(said), other.receive())
    assert heard == (said, [])


async def test_sockets_travel_with_the_first_piece(ends):
    one, other = map(Channel, ends)
    with socket.socket() as lent:
        rules = [RuleText(f"{n}.{'x' * 200}.example", "sandbox") for n in range(10_000)]
        said = Attach("sandbox", rules)
        _, (heard, sockets) = await asyncio.gather(one.send(said, [lent]), other.receive())
        assert heard == said
        (arrived,) = sockets
        with arrived:
            assert os.path.sameopenfile(arrived.fileno(), lent.fileno())
            assert not os.get_inheritable(arrived.fileno())


async def test_those_of_other_versions_understand_each_other_as_far_as_hello(ends):
    """Until version 5 a message was one packet, whatever its size."""
    channel, older = Channel(ends[0]), ends[1]
    older.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    await channel.send(Hello())
    assert msgspec.json.decode(older.recv(1 << 20)) == {
        "type": "Hello",
        "version": protocol.VERSION,
    }
    attached = [f"sandbox-{n}-{'x' * 200}" for n in range(1500)]
    older.send(msgspec.json.encode(Here(4, "id", attached)))
    assert await channel.receive() == (Here(4, "id", attached), [])


async def test_what_is_too_large_is_refused_and_the_conversation_goes_on(ends):
    one, other = map(Channel, ends)
    with pytest.raises(protocol.TooLarge, match=f"Failed has .* at most {protocol.LARGEST}"):
        await one.send(Failed("x" * protocol.LARGEST))
    await one.send(Done())
    assert await other.receive() == (Done(), [])


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (struct.pack("!BQ", 0, protocol.LARGEST + 1) + b"{", "at most"),
        (b"\0", "beginning of nothing"),
    ],
)
async def test_who_says_too_much_is_not_listened_to(ends, first, why):
    channel = Channel(ends[0])
    ends[1].send(first)
    with pytest.raises(OSError, match=why):
        await channel.receive()


async def test_who_goes_in_the_middle_has_said_nothing(ends):
    channel = Channel(ends[0])
    ends[1].send(struct.pack("!BQ", 0, 1000) + b"{")
    ends[1].close()
    with pytest.raises(EOFError):
        await channel.receive()
