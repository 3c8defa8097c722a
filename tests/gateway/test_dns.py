"""The name server, asked by hand."""

import asyncio
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.gateway import dns
from paddock.gateway import fence as fencing
from paddock.gateway.fence import Fence
from paddock.gateway.journal import Journal
from paddock.gateway.names import Names
from paddock.gateway.outside import Outside


def question(name: str, kind: int = dns.A, flags: int = 0x0100, **counts: int) -> bytes:
    labels = b"".join(bytes([len(each)]) + each for each in name.encode().split(b".") if each)
    header = struct.pack("!6H", 4711, flags, counts.get("questions", 1), 0, 0, 0)
    return header + labels + b"\0" + struct.pack("!HH", kind, counts.get("space", 1))


def find(name: str) -> str:
    return "198.18.0.16" if name == "allowed.example" else ""


def code(packet: bytes) -> int:
    return packet[3] & 15


def test_a_name_that_exists_has_one_address_of_ours():
    said = dns.answer(question("Allowed.EXAMPLE"), find)
    assert said[:2] == struct.pack("!H", 4711)
    assert code(said) == 0
    assert said[-4:] == bytes([198, 18, 0, 16])


@pytest.mark.proves("P16")
def test_other_kinds_of_records_are_empty_and_other_names_are_not_there():
    for kind in (dns.AAAA, 5, 15, 16, 65):
        said = dns.answer(question("allowed.example", kind), find)
        assert (code(said), struct.unpack_from("!H", said, 6)[0]) == (0, 0)
    for name in ("blocked.example", "sub.allowed.example", "", "127.1", "a b.example"):
        assert code(dns.answer(question(name), find)) == 3, name


def test_what_is_no_ordinary_question_is_refused():
    assert code(dns.answer(question("allowed.example", flags=0x2800), find)) == 4
    assert code(dns.answer(question("allowed.example", questions=2), find)) == 1
    assert code(dns.answer(question("allowed.example", space=3), find)) == 1
    assert code(dns.answer(question("allowed.example")[:-4], find)) == 1
    pointer = question("x")[:12] + b"\xc0\x0c" + struct.pack("!HH", 1, 1)
    assert code(dns.answer(pointer, find)) == 1
    assert dns.answer(question("allowed.example", flags=0x8000), find) == b""


@given(st.binary(max_size=600))
def test_any_packet_is_answered_or_ignored_and_asks_only_for_names(packet):
    asked = []
    said = dns.answer(packet, lambda name: asked.append(name) or "")
    assert len(asked) <= 1
    assert all(asked)
    assert not said or said[:2] == packet[:2]


@given(st.lists(st.from_regex(r"[a-z]{1,8}\.example", fullmatch=True), max_size=50))
def test_names_have_addresses_of_their_own_both_ways(names):
    table = Names()
    given_out = {name: table.address_of(name) for name in names}
    assert len(set(given_out.values())) == len(given_out)
    for name, address in given_out.items():
        assert table.name_of(address) == name
        assert table.address_of(name) == address
        assert Names().address_of(name) == address or len(names) > 1


def test_addresses_of_others_are_told_from_ours():
    table = Names()
    assert table.name_of("198.18.9.9") == ""
    assert table.name_of("8.8.8.8") is None


def test_names_beyond_number_push_out_the_oldest():
    table = Names()
    first = table.address_of("first.example")
    for number in range(8192):
        table.address_of(f"n{number}.example")
    assert table.name_of(first) == ""


@pytest.mark.timeout(20)
async def test_who_asks_by_tcp_is_bounded_in_number_and_time(monkeypatch):
    monkeypatch.setattr(fencing, "_MOST_CONNECTIONS", 3)
    monkeypatch.setattr(fencing, "_DNS_IDLE_S", 1.0)
    fence = Fence("sbx_1", Outside(), Journal())
    kinds = [socket.SOCK_STREAM] * 3 + [socket.SOCK_DGRAM]
    sockets = [socket.socket(socket.AF_INET, kind) for kind in kinds]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    place = sockets[2].getsockname()
    await fence.listen(sockets)
    opened = [await asyncio.open_connection(*place) for _ in range(3)]
    asked = question("a.example")
    for reader, writer in opened:
        writer.write(len(asked).to_bytes(2, "big") + asked)
        said = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        assert code(said) == 3
    opened.append(await asyncio.open_connection(*place))
    async with asyncio.timeout(0.5):
        assert await _rest(opened[3][0]) == b"", "one too many"
    async with asyncio.timeout(5):
        for reader, _ in opened[:3]:
            assert await _rest(reader) == b"", "silent for too long"
    opened.append(await asyncio.open_connection(*place))
    opened[4][1].write(len(asked).to_bytes(2, "big") + asked)
    assert await opened[4][0].readexactly(2), "there is room again"
    fence.close()
    for _, writer in opened:
        writer.transport.abort()
    await asyncio.sleep(0.05)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
