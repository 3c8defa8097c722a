"""Control planes and gateways that come and go, as processes."""

import asyncio
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.egress.gateway import HostGateway
from paddock.adapters.egress.presets import shipped_presets
from paddock.domain.egress import EgressPolicy, NetworkMode, SourcedRule
from paddock.domain.egress.rule import parse
from paddock.domain.errors import Broken, TooLarge
from paddock.gateway.protocol import LARGEST
from paddock.ports.egress import Credential
from tests.gateway.test_dns import question

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def place() -> AsyncIterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="pdk-gw-"))
    try:
        yield made
        async with asyncio.timeout(10):
            while pids(made):
                await asyncio.sleep(0.05)
    finally:
        for pid in pids(made):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(made)


def pids(place: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0] if words else ""
        except OSError:
            continue
        if f"--of={place}".encode() in words and state != "Z":
            found.append(int(entry.name))
    return found


@asynccontextmanager
async def gateway(place: Path) -> AsyncIterator[HostGateway]:
    made = HostGateway(place, EgressConfig())
    try:
        yield made
    finally:
        await made.aclose()


def sockets() -> list[socket.socket]:
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    return [*made, datagrams]


@asynccontextmanager
async def attached(
    one: HostGateway, ref: str = "a", rules: tuple[str, ...] = ("a.example",)
) -> AsyncIterator[list[int]]:
    """The ports of its sockets, which here lie in the network of the test."""
    handed = sockets()
    ports = [each.getsockname()[1] for each in handed]
    policy = EgressPolicy(NetworkMode.ALLOWLIST, tuple(map(SourcedRule, rules)))
    await one.attach(ref, handed, policy)
    for each in handed:
        each.close()
    yield ports


async def test_none_is_started_to_ask_or_to_detach(place: Path):
    async with gateway(place) as one:
        assert await one.attached() == frozenset()
        await one.detach("a")
        assert await one.drain({}) is None
        assert not pids(place)


async def test_several_control_planes_share_one_that_ends_with_the_last_sandbox(place: Path):
    async with gateway(place) as one, gateway(place) as two:
        async with attached(one):
            assert await two.attached() == {"a"}
            assert len(pids(place)) == 1
            assert await two.change("a", EgressPolicy(NetworkMode.ALLOWLIST))
            assert not await two.change("b", EgressPolicy(NetworkMode.ALLOWLIST))
        await one.aclose()
        await two.aclose()
        await asyncio.sleep(0.3)
        assert len(pids(place)) == 1, "it serves somebody"
        await two.detach("a")


@pytest.mark.proves("P16")
async def test_ports_of_one_control_plane_stay_closed_whatever_another_says(place: Path):
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]
        async with gateway(place) as one, gateway(place) as two:
            async with attached(one, rules=("127.0.0.1/32:*",)) as (_, proxy, *_):
                assert await connected(proxy, port)
                await two.close_ports(frozenset({port}))
                assert not await connected(proxy, port)
                await one.close_ports(frozenset({1}))
                assert not await connected(proxy, port)
                await two.aclose()
                await one.close_ports(frozenset({2}))
                assert not await connected(proxy, port), "it may be back in a moment"
            await one.detach("a")


async def connected(proxy: int, port: int) -> bool:
    """Whether a proxy connects to a port of this host."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy)
    writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return line.split()[1] == b"200"


async def test_one_that_was_killed_is_followed_by_another(place: Path):
    async with gateway(place) as one:
        async with attached(one):
            (first,) = pids(place)
            os.kill(first, signal.SIGKILL)
        assert await one.attached() == frozenset()
        async with attached(one):
            assert await one.attached() == {"a"}
        await one.detach("a")


@pytest.mark.proves("P16")
async def test_rules_that_cannot_be_read_attach_nobody(place: Path):
    async with gateway(place) as one:
        handed = sockets()
        policy = EgressPolicy(NetworkMode.ALLOWLIST, (SourcedRule("not a rule"),))
        with pytest.raises(Broken, match="not a rule"):
            await one.attach("a", handed, policy)
        with pytest.raises(Broken, match="sockets"):
            await one.attach("a", handed[:2], EgressPolicy(NetworkMode.ALLOWLIST))
        for each in handed:
            each.close()
        assert await one.attached() == frozenset()


def test_every_rule_that_comes_with_paddock_can_be_read():
    presets = shipped_presets()
    assert set(presets) == {"development"}
    for rules in presets.values():
        assert len(rules) == len(set(rules))
        for rule in rules:
            assert parse(rule).allows


async def test_however_much_was_seen_all_of_it_is_told(place: Path):
    """Five sandboxes that ask for many long names: more than a packet holds."""
    names = [f"{number}.{'.'.join(['x' * 58] * 4)}.example" for number in range(490)]
    async with gateway(place) as one:
        for ref in "abcde":
            async with attached(one, ref) as (*_, name_server):
                await asked(name_server, names)
        told, batch = [], await one.drain({})
        while batch is not None:
            told += [(flow.ref, flow.host) for flow in batch.flows]
            assert await one.drain({}) == batch, "it was not acknowledged"
            batch = await one.drain({batch.gateway: batch.number})
        assert sorted(told) == sorted((ref, name) for ref in "abcde" for name in names)
        for ref in "abcde":
            await one.detach(ref)


async def asked(port: int, names: list[str]) -> None:
    """One after the other, so that none is lost."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setblocking(False)
        asking.connect(("127.0.0.1", port))
        for name in names:
            await loop.sock_sendall(asking, question(name))
            assert (await loop.sock_recv(asking, 1000))[3] & 15 == 3, "there is no such name"


async def test_all_that_may_be_lent_is_lent_and_more_is_refused_with_the_reason(place: Path):
    def lent(count: int, size: int) -> list[Credential]:
        value = "x" * size
        return [Credential(f"s{n}", f"p{n}", ["a.example"], "header", value) for n in range(count)]

    async with gateway(place) as one:
        async with attached(one, rules=tuple(f"{n}.{'x' * 60}.example" for n in range(500))):
            assert await one.give("a", "mark", lent(128, 64 << 10))
            assert await one.marks() == {"a": "mark"}
            with pytest.raises(TooLarge, match="SetCredentials has"):
                await one.give("a", "more", lent(2, LARGEST // 2))
            assert await one.marks() == {"a": "mark"}
        await one.detach("a")
