"""Sandboxes with an allowlist, on each provider that has one, and a server that lies outside."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.egress.gateway import HostGateway
from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.egress import EgressPolicy, NetworkMode, SourcedRule
from paddock.guest_client import Guest
from paddock.ports.egress import Flow
from paddock.ports.provider import Ref, SandboxSpec
from tests.adapters.providers.docker.conftest import Installation
from tests.engines import furnish
from tests.harness import disk
from tests.upstreams import Upstream, gateway_of

CONTROL_PORT = 7999
ALLOWED = ("allowed.example", "*.wild.example", "tcp.example:22,5432", "trap.example:*")
NAMES = ("allowed.example", "a.wild.example", "tcp.example")
CLOSED_PORTS = frozenset({CONTROL_PORT})


def hosts(there: Upstream) -> dict[str, str]:
    """What names mean outside: some that rules allow are traps."""
    return dict.fromkeys((*NAMES, "wild.example", "blocked.example"), there.address) | {
        "trap.example": "127.0.0.1",
        "metadata.trap.example": "169.254.169.254",
        "host.trap.example": gateway_of(there.address),
        "private.trap.example": "10.123.45.67",
    }


def allowlist(*rules: str, by_operator: bool = False) -> EgressPolicy:
    sourced = tuple(SourcedRule(rule, by_operator=by_operator) for rule in rules)
    return EgressPolicy(NetworkMode.ALLOWLIST, sourced)


@dataclass
class World:
    """A provider whose sandboxes could reach a server, if they were let."""

    provider: LocalProvider | DockerProvider
    there: Upstream

    @property
    def gateway(self) -> HostGateway:
        assert self.provider.gateway is not None
        return self.provider.gateway

    @asynccontextmanager
    async def sandbox(self, *rules: str, by_operator: bool = False) -> AsyncIterator["Inside"]:
        policy = allowlist(*(rules or ALLOWED), by_operator=by_operator)
        key = f"egress-{time.monotonic_ns()}"
        made = await self.provider.create(key, SandboxSpec(template="base", egress=policy))
        try:
            async with Guest(await self.provider.guest(made.ref)) as guest:
                yield Inside(self, made.ref, guest)
        finally:
            await self.provider.destroy(made.ref)

    @asynccontextmanager
    async def again(self, ref: Ref) -> AsyncIterator["Inside"]:
        """One whose guest is another than before."""
        async with Guest(await self.provider.guest(ref)) as guest:
            yield Inside(self, ref, guest)

    async def flows(self, ref: Ref) -> list[Flow]:
        """What the gateway saw of a sandbox until now; it is asked for by nobody else here."""
        batch = await self.gateway.drain({})
        if batch is not None:
            await self.gateway.drain({batch.gateway: batch.number})
        return [flow for flow in (batch.flows if batch else ()) if flow.ref == ref.id]

    def descriptors(self) -> int:
        """How many the gateway has open."""
        (gateway,) = self.gateways()
        return len(list(Path(f"/proc/{gateway}/fd").iterdir()))

    @asynccontextmanager
    async def nothing_left(self) -> AsyncIterator[None]:
        """Whatever is connected to within it is let go of soon after its end."""
        before = self.descriptors()
        yield
        until = time.monotonic() + 8
        while self.descriptors() > before and time.monotonic() < until:
            await asyncio.sleep(0.1)
        assert self.descriptors() <= before

    def gateways(self) -> list[int]:
        """The processes of it."""
        mark = f"--of={self.gateway.place}".encode()
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and mark in _read(entry / "cmdline").split(b"\0")
        ]


@dataclass
class Inside:
    """Somebody in a sandbox who wants out."""

    world: World
    ref: Ref
    guest: Guest

    async def run(self, *argv: str, timeout: float = 20) -> tuple[int, str]:
        done = await self.guest.exec(list(argv), user="user", timeout=timeout)
        return done.exit_code, (done.stdout + done.stderr).decode(errors="replace")

    async def until_made(self, file: str) -> None:
        """A program inside makes the file when it has come so far."""
        code, said = await self.run("sh", "-c", f"until [ -e {file} ]; do sleep 0.02; done")
        assert code == 0, said

    async def curl(self, *more: str) -> tuple[int, str]:
        return await self.run("curl", "-sS", "-m", "8", *more)

    async def python(self, program: str, *more: str) -> str:
        code, said = await self.run("python3", "-c", program, *more)
        assert code == 0, said
        return said.strip()


@asynccontextmanager
async def on_local(
    runtime: str, egress: EgressConfig, agents: Path | None = None
) -> AsyncIterator[LocalProvider]:
    home = disk.new_directory()
    config = LocalConfig(data_dir=home / "data", runtime=runtime)
    furnish(config.data_dir, "base")
    provider = await LocalProvider.open(
        config, egress=egress, closed_ports=CLOSED_PORTS, agents=agents
    )
    try:
        yield provider
    finally:
        await provider.aclose()
        disk.remove(home)


@asynccontextmanager
async def on_docker(
    host: str, egress: EgressConfig, agents: Path | None = None
) -> AsyncIterator[DockerProvider]:
    """Nothing of it is left afterwards."""
    run_root = Path(tempfile.mkdtemp(prefix="pdk-egress-", dir="/tmp"))
    made = Installation(host, run_root)
    try:
        opening = made.opened(egress=egress, closed_ports=CLOSED_PORTS, agents=agents)
        async with opening as provider:
            yield provider
        await made.empty()
        assert await _settled(made) == {}
    finally:
        shutil.rmtree(run_root, ignore_errors=True)


async def _settled(made: Installation) -> dict[str, Sequence[str]]:
    """What is left once the gateway has noticed that nobody needs it."""
    until = time.monotonic() + 5
    while (left := await made.left()) and time.monotonic() < until:
        await asyncio.sleep(0.1)
    return dict(left)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
