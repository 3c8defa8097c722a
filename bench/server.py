"""The same work through the HTTP API of a running `paddock up`, and what only a server does."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from e2b import E2B
from tests.harness.disk import TEMPLATES

from bench import docker, local, rows
from bench.measurements import Stage, measures
from paddock import AsyncSandbox, Server
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.layout import Layout
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.adapters.providers.local.storage import unmount_pool

_WARM = 100
Before = Callable[[Path], Awaitable[None]]
"""What is done to a data directory that no server has used."""


@dataclass
class Api:
    """A client with the first admin's token."""

    url: str
    token: str
    session: aiohttp.ClientSession

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"authorization": f"Bearer {self.token}"}
        async with self.session.request(
            method, self.url + path, json=body, headers=headers
        ) as answer:
            content = await answer.read()
            assert answer.status < 300, content
            return json.loads(content) if content else None

    async def create(self) -> str:
        return str((await self.call("POST", "/v1/sandboxes", {}))["id"])

    async def execute(self, sandbox: str, *command: str) -> str:
        wish = {"cmd": list(command)}
        answer = await self.call("POST", f"/v1/sandboxes/{sandbox}/exec", wish)
        assert answer["exit_code"] == 0
        return str(answer["stdout"])

    async def first_output(self) -> str:
        sandbox = await self.create()
        assert await self.execute(sandbox, "/bin/echo", "hello") == "hello\n"
        return sandbox

    async def remove_all(self) -> None:
        while items := (await self.call("GET", "/v1/sandboxes?limit=500"))["items"]:
            for item in items:
                await self.call("DELETE", f"/v1/sandboxes/{item['id']}")


async def until_warm(data: Path, count: int) -> None:
    """The pool is the server's own business; the sockets of its guests say when it is full."""
    layout = Layout.of(data, LocalConfig().run_root)
    async with asyncio.timeout(180):
        while len(list((layout.run / "guests").glob("*.sock"))) < count:
            await asyncio.sleep(0.2)
    await asyncio.sleep(2)


@contextlib.asynccontextmanager
async def server(
    warm: int, *, before: Before | None = None, **settings: str
) -> AsyncIterator[tuple[Api, Path]]:
    """`paddock up` in a process and a data directory of its own."""
    home = Path(tempfile.mkdtemp(prefix="paddock-bench-", dir="/var/tmp"))
    data = home / "data"
    if before is not None:
        await before(data)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "PADDOCK_LOCAL__TEMPLATE_CACHE": str(TEMPLATES),
        "PADDOCK_LOCAL__WARM": json.dumps({"base": warm}),
        "PADDOCK_SERVER__REQUESTS_PER_SECOND": "100000",
        "PADDOCK_SERVER__REQUESTS_BURST": "100000",
        **{f"PADDOCK_{name.upper()}": value for name, value in settings.items()},
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "paddock", "up", f"--data-dir={data}", f"--port={port}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(300):
            url = (await process.stdout.readline()).decode().split()[1]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield Api(url, (data / "admin-token").read_text().strip(), session), data
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        await _remove(data)
        unmount_pool(data)
        shutil.rmtree(home, ignore_errors=True)


async def _remove(data: Path) -> None:
    provider = await LocalProvider.open(LocalConfig(data_dir=data))
    try:
        async for found in provider.find({}):
            await provider.destroy(found.ref)
    finally:
        await provider.aclose()


@dataclass
class Setup:
    """A server with a full pool, and what it is compared with."""

    api: Api
    data: Path
    engine: docker.Engine

    async def refill(self) -> None:
        """Every measurement finds a full pool, and no sandbox is replaced meanwhile."""
        await self.api.remove_all()
        await until_warm(self.data, _WARM)


@contextlib.asynccontextmanager
async def with_docker() -> AsyncIterator[Setup]:
    async with (
        local.installation() as provider,
        local.docker_engine(provider) as engine,
        server(_WARM) as (api, data),
    ):
        await until_warm(data, _WARM)
        yield Setup(api, data, engine)


@measures("create to first output, warm pool, by HTTP (docker run)")
async def create(setup: Setup) -> list[rows.Row]:
    docker_ms = await setup.engine.run_ms()
    await setup.refill()
    warm_ms = await rows.median(12, lambda _: rows.timed(setup.api.first_output))
    return [rows.fraction(warm_ms, docker_ms, 20)]


@measures("exec of `true`, p50, by HTTP (Docker API exec)")
async def execs(setup: Setup) -> list[rows.Row]:
    docker_ms = await setup.engine.exec_ms()
    sandbox = await setup.api.create()
    ours_ms = await rows.median(
        200, lambda _: rows.timed(lambda: setup.api.execute(sandbox, "true"))
    )
    return [rows.fraction(ours_ms, docker_ms, 15)]


def _first_output_by(place: Server) -> Callable[[], Awaitable[AsyncSandbox]]:
    async def first_output() -> AsyncSandbox:
        made = await AsyncSandbox.create(server=place)
        assert (await made.commands.run(["/bin/echo", "hello"])).stdout == "hello\n"
        return made

    return first_output


@measures(
    "create to first output, warm pool, by the SDK (docker run)",
    "exec of `true`, p50, by the SDK (Docker API exec)",
)
async def by_sdk(setup: Setup) -> list[rows.Row]:
    """What a program sees: a new sandbox to its first output, and a durable command."""
    run_ms, exec_ms = await setup.engine.run_ms(), await setup.engine.exec_ms()
    await setup.refill()
    place = Server(setup.api.url, setup.api.token)
    first_output = _first_output_by(place)
    ours_ms = await rows.median(12, lambda _: rows.timed(first_output))
    made = await first_output()
    command_ms = await rows.median(
        200, lambda _: rows.timed(lambda: made.commands.run(["/bin/true"]))
    )
    await place.aclose()
    return [rows.fraction(ours_ms, run_ms, 20), rows.fraction(command_ms, exec_ms, 15)]


@measures("100 creates at once by HTTP, pool of 100, p50")
async def burst(setup: Setup) -> list[rows.Row]:
    return await _burst(setup, setup.api.first_output)


@measures("100 creates at once by the SDK, pool of 100, p50")
async def burst_by_sdk(setup: Setup) -> list[rows.Row]:
    place = Server(setup.api.url, setup.api.token)
    try:
        return await _burst(setup, _first_output_by(place))
    finally:
        await place.aclose()


async def _burst(setup: Setup, first_output: Callable[[], Awaitable[object]]) -> list[rows.Row]:
    await setup.refill()
    times = await asyncio.gather(*(rows.timed(first_output) for _ in range(100)))
    await setup.api.remove_all()
    return [rows.at_most(statistics.median(times), 350, "ms")]


@measures(
    "create, warm pool, by E2B's SDK (docker run)",
    "create and first command, warm pool, by E2B's SDK (docker run)",
    "command, p50, by E2B's SDK",
)
async def by_e2b(setup: Setup) -> list[rows.Row]:
    docker_ms = await setup.engine.run_ms()
    await setup.refill()
    made_ms, output_ms, command_ms = await asyncio.to_thread(_by_e2b, setup.api)
    return [
        rows.fraction(made_ms, docker_ms, 10),
        rows.fraction(output_ms, docker_ms, 10),
        rows.at_most(command_ms, 8, "ms"),
    ]


def _by_e2b(api: Api) -> tuple[float, float, float]:
    """The same by the SDK of others, which is a blocking one and has a login shell run each."""
    client = E2B(api_key=api.token, api_url=api.url, sandbox_url=api.url)
    creates, outputs, commands = [], [], []
    for _ in range(12):
        start = time.perf_counter()
        box = client.Sandbox.create(timeout=300)
        creates.append((time.perf_counter() - start) * 1e3)
        assert box.commands.run("echo hello").stdout == "hello\n"
        outputs.append((time.perf_counter() - start) * 1e3)
    for _ in range(200):
        start = time.perf_counter()
        box.commands.run("true")
        commands.append((time.perf_counter() - start) * 1e3)
    return statistics.median(creates), statistics.median(outputs), statistics.median(commands)


@measures("a command's line to an SSE client, p50")
async def lines(setup: Setup) -> list[rows.Row]:
    """From the moment a program writes a line, by its own word, until a client has it."""
    api = setup.api
    sandbox = await api.create()
    script = (
        "import time\n"
        "for _ in range(100):\n"
        "    print(time.time(), flush=True)\n"
        "    time.sleep(0.02)\n"
    )
    url = f"{api.url}/v1/sandboxes/{sandbox}/exec/stream?format=sse"
    headers = {"authorization": f"Bearer {api.token}"}
    wish = {"cmd": ["python3", "-c", script]}
    delays: list[float] = []
    async with api.session.post(url, json=wish, headers=headers) as answer:
        async for line in answer.content:
            now = time.time()
            if line.startswith(b"data: ") and b'"stdout"' in line:
                said = json.loads(line.removeprefix(b"data: "))["data"]
                delays += [(now - float(word)) * 1e3 for word in said.split()]
    assert len(delays) == 100
    return [rows.at_most(statistics.median(delays), 20, "ms")]


STAGES = (
    Stage(
        "a server with a full pool, and a Docker engine",
        with_docker,
        (create, execs, by_sdk, by_e2b, burst, burst_by_sdk, lines),
    ),
)
