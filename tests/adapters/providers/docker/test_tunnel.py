"""Connections into a sandbox whose engine is elsewhere, carried over one attached program."""

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from paddock.adapters.providers.relay import END, HEADER
from paddock.adapters.providers.tunnel import RELAY_ARGV, Line, Tunnel
from paddock.domain.errors import Unavailable
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.docker.conftest import BASE, TINY, Installation

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class Piped:
    """A relay on this host, attached to by pipes instead of by an engine."""

    complaint = ""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._stdin, self._stdout = process, process.stdin, process.stdout

    @classmethod
    async def start(cls) -> "Piped":
        pipe = asyncio.subprocess.PIPE
        argv = ("python3", *RELAY_ARGV[1:])
        return cls(await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe))

    async def read(self) -> bytes:
        return await self._stdout.read(65_536)

    async def write(self, data: bytes) -> None:
        self._stdin.write(data)
        await self._stdin.drain()

    def abort(self) -> None:
        self._stdin.close()


@pytest.fixture
async def lines() -> AsyncIterator[list[Piped]]:
    """Every relay that a test started; all of them must have ended by themselves."""
    started: list[Piped] = []
    yield started
    async with asyncio.timeout(10):
        for line in started:
            assert await line.process.wait() == 0


@asynccontextmanager
async def tunnel_to(
    target: str, lines: list[Piped], directory: Path
) -> AsyncIterator[tuple[Tunnel, str]]:
    async def start() -> Piped:
        lines.append(await Piped.start())
        return lines[-1]

    tunnel = Tunnel(start)
    path = str(directory / f"{os.urandom(4).hex()}.sock")
    await tunnel.listen_unix(path, target)
    try:
        yield tunnel, path
    finally:
        await tunnel.aclose()


@asynccontextmanager
async def server(behave: Callable[..., object]) -> AsyncIterator[str]:
    listening = await asyncio.start_server(behave, "127.0.0.1", 0)  # type: ignore[arg-type]
    try:
        yield f"tcp:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        await listening.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def exchange(path: str, data: bytes) -> bytes:
    """Everything that comes back when this is sent and then the end."""
    reader, writer = await asyncio.open_unix_connection(path)

    async def send() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    _, answer = await asyncio.gather(send(), reader.read(-1))
    writer.close()
    return answer


async def test_many_connections_at_once_do_not_mix(
    lines: list[Piped], short_directory: Path
) -> None:
    async with server(echo) as target, tunnel_to(target, lines, short_directory) as (_, path):
        sent = [os.urandom(100_000 + number) for number in range(60)]
        answers = await asyncio.gather(*(exchange(path, data) for data in sent))
        assert answers == sent
    assert len(lines) == 1, "one relay carries all of them"


async def test_megabytes_pass_unchanged_in_both_directions(
    lines: list[Piped], short_directory: Path
) -> None:
    data = os.urandom(1 << 20) * 24
    async with server(echo) as target, tunnel_to(target, lines, short_directory) as (_, path):
        answer = await exchange(path, data)
    assert hashlib.sha256(answer).digest() == hashlib.sha256(data).digest()


async def test_one_that_does_not_read_holds_up_nobody(
    lines: list[Piped], short_directory: Path
) -> None:
    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(bytes(65_536))
                await writer.drain()
        except ConnectionError:
            return

    async with server(flood) as target, tunnel_to(target, lines, short_directory) as (tunnel, path):
        _, stuck = await asyncio.open_unix_connection(path, limit=1024)
        async with asyncio.timeout(20):
            while not lines:
                await asyncio.sleep(0.02)
        before = await _stable(lines[0].process.pid)
        async with server(echo) as other:
            await tunnel.listen_unix(f"{path}2", other)
            async with asyncio.timeout(30):
                assert await exchange(f"{path}2", b"quick") == b"quick"
        after = await _stable(lines[0].process.pid)
        assert after - before < 8 << 20, "the relay keeps no flood"
        stuck.transport.abort()


async def _stable(pid: int) -> int:
    """The memory of a process that has not taken more for a while."""
    size = 0
    async with asyncio.timeout(20):
        while (found := _resident(pid)) > size:
            size = found
            await asyncio.sleep(0.3)
    return size


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def test_a_port_where_nobody_listens_breaks_the_connection(
    lines: list[Piped], short_directory: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        target = f"tcp:{taken.getsockname()[1]}"
        async with tunnel_to(target, lines, short_directory) as (_, path):
            reader, writer = await asyncio.open_unix_connection(path)
            assert await reader.read() == b""
            writer.close()


async def test_a_relay_that_dies_is_replaced_for_the_next_connection(short_directory: Path) -> None:
    lines: list[Piped] = []
    async with server(echo) as target, tunnel_to(target, lines, short_directory) as (_, path):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"first")
        assert await reader.readexactly(5) == b"first"
        lines[0].process.kill()
        with pytest.raises(asyncio.IncompleteReadError):
            await reader.readexactly(1)
        writer.close()
        assert await exchange(path, b"second") == b"second"
    assert len(lines) == 2
    for line in lines:
        await line.process.wait()


async def test_who_asks_for_one_way_at_once_gets_one(
    lines: list[Piped], short_directory: Path
) -> None:
    async with server(echo) as target, tunnel_to(target, lines, short_directory) as (tunnel, path):
        other = f"{path}-other"
        await asyncio.gather(*(tunnel.listen_unix(other, "tcp:1") for _ in range(5)))
        assert len(tunnel._servers) == 2
        listeners = Path("/proc/net/unix").read_text().count(f"{other}\n")
        assert listeners == 1


async def test_a_relay_that_ends_one_connection_for_ever_is_cut_off() -> None:
    class Ending(Piped):
        async def read(self) -> bytes:
            await asyncio.sleep(0.01)
            return HEADER.pack(END, 1, 0) * 1000

    ending = Ending((await Piped.start()).process)
    line = Line(ending)
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    with theirs:
        carrying = asyncio.create_task(line.carry("tcp:1", reader, writer))
        async with asyncio.timeout(5):
            while line.alive:
                await asyncio.sleep(0.01)
    await asyncio.wait_for(carrying, 5)
    await line.aclose()
    await ending.process.wait()


async def test_a_relay_that_does_not_keep_to_the_rules_is_cut_off(short_directory: Path) -> None:
    class Lying(Piped):
        async def read(self) -> bytes:
            await super().read()
            return b"\xff" * 64

    lying = Lying((await Piped.start()).process)
    line = Line(lying)  # type: ignore[arg-type]
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    with theirs:
        with pytest.raises(Unavailable):
            await _carried(line, reader, writer)
    assert not line.alive
    await line.aclose()
    await lying.process.wait()


async def _carried(line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A line swallows what a client cannot use; here it is wanted."""
    async with asyncio.timeout(10):
        await line.carry("tcp:1", reader, writer)
    if not line.alive:
        raise Unavailable("the line was cut")


@asynccontextmanager
async def over_tcp(host: str) -> AsyncIterator[str]:
    """The same engine, as one that is reached over a network."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner = await asyncio.open_unix_connection(host.removeprefix("unix://"))

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65_536):
                    sink.write(data)
                    await sink.drain()
                sink.write_eof()
            except OSError:
                sink.transport.abort()

        await asyncio.gather(pump(reader, inner), pump(inner_reader, writer))
        writer.close()
        inner.close()

    async with server(carry) as target:
        yield f"tcp://127.0.0.1:{target.removeprefix('tcp:')}"


@pytest.mark.proves("P6")
@pytest.mark.usefixtures("base_image")
async def test_an_engine_elsewhere_is_used_like_one_here(installation: Installation) -> None:
    async with over_tcp(installation.host) as host:
        async with installation.opened(host=host, nofile=1024) as provider:
            seen = await provider.create("far", SandboxSpec(template=BASE, env={"A": "one\ntwo"}))
            async with Guest(await provider.guest(seen.ref)) as guest:
                result = await guest.exec(["python3", "-c", "import os; print(os.environ['A'])"])
                assert result.text == "one\ntwo\n"
                program = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8123)"
                serving = asyncio.create_task(guest.exec(["python3", "-c", program], timeout=60))
                endpoint = await provider.endpoint(seen.ref, 8123)
                assert endpoint.url.startswith("http://127.0.0.1:")
                assert await _eventually_answers(endpoint.url)
                serving.cancel()
            await provider.stop(seen.ref)
            await provider.start(seen.ref)
            async with Guest(await provider.guest(seen.ref)) as guest:
                assert (await guest.exec(["sh", "-c", 'test "$A" && echo on'])).text == "on\n"
            await provider.destroy(seen.ref)


async def _eventually_answers(url: str) -> bool:
    async with aiohttp.ClientSession() as session:
        for _ in range(100):
            try:
                async with session.get(url) as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)
    return False


@pytest.mark.usefixtures("base_image")
async def test_no_relay_is_left_when_the_control_plane_goes(installation: Installation) -> None:
    async with installation.opened(guest="packed") as provider:
        seen = await provider.create("left", SandboxSpec(template=BASE))
    async with installation.opened(guest="packed") as provider:
        for _ in range(100):
            pids = (await provider.usage(seen.ref)).pids
            if pids == 1:
                break
            await asyncio.sleep(0.05)
        assert pids == 1, "only the guest itself is still there"


async def test_a_guest_joined_elsewhere_is_left_alone(
    installation: Installation, tmp_path: Path, short_directory: Path
) -> None:
    async with installation.opened(guest="joined") as provider:
        seen = await provider.create("theirs", SandboxSpec(template=TINY))
        elsewhere = short_directory / tmp_path.name[-8:]
        async with installation.opened(guest="joined", run_root=elsewhere) as other:
            assert (await other.observe(seen.ref)).state == "running"
            with pytest.raises(Unavailable, match="joined from elsewhere"):
                await other.guest(seen.ref)
        assert (await provider.observe(seen.ref)).state == "running"
