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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from e2b import E2B

from bench import docker, rows
from paddock import AsyncSandbox, Server
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.layout import Layout
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.adapters.providers.local.storage import unmount_pool
from paddock.adapters.store.store import open_store
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_id
from paddock.domain.lifetime import Clockwork
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Team
from paddock.ports.clock import SystemClock
from paddock.ports.store import Page, SandboxFilter
from paddock.services.access import Access
from paddock.services.once import Once
from paddock.services.system import operating_team
from paddock.wiring.keys import keep, open_vault
from paddock.wiring.server import TOKEN_FILE

REPOSITORY = Path(__file__).parents[1]
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
        "PADDOCK_LOCAL__TEMPLATE_CACHE": str(REPOSITORY / "build" / "templates"),
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


async def measure(engine: docker.Engine) -> list[rows.Row]:
    async def by_docker(_: int) -> float:
        return await rows.timed(engine.run_once)

    docker_ms = await rows.median(9, by_docker)
    container = await engine.start_idle("api")
    exec_ms = await rows.median(20, lambda _: rows.timed(lambda: engine.exec_true(container)))
    async with server(_WARM) as (api, data):
        await until_warm(data, _WARM)
        warm_ms = await rows.median(12, lambda _: rows.timed(api.first_output))
        sandbox = await api.create()
        ours_ms = await rows.median(200, lambda _: rows.timed(lambda: api.execute(sandbox, "true")))
        latency_ms = await _line_latency(api, sandbox)
        await _anew(api, data)
        by_sdk = await _by_sdk(api)
        await _anew(api, data)
        by_e2b = await asyncio.to_thread(_by_e2b, api)
        place = Server(api.url, api.token)
        bursts = [
            await _burst(api, data, "HTTP", api.first_output),
            await _burst(api, data, "the SDK", _first_output_by(place)),
        ]
        await place.aclose()
    return [
        rows.fraction(
            "create to first output, warm pool, by HTTP (docker run)", warm_ms, docker_ms, 20
        ),
        rows.fraction("exec of `true`, p50, by HTTP (Docker API exec)", ours_ms, exec_ms, 15),
        rows.fraction(
            "create to first output, warm pool, by the SDK (docker run)", by_sdk[0], docker_ms, 20
        ),
        rows.fraction("exec of `true`, p50, by the SDK (Docker API exec)", by_sdk[1], exec_ms, 15),
        *_e2b_rows(by_e2b, docker_ms),
        *bursts,
        rows.at_most("a command's line to an SSE client, p50", latency_ms, 20, "ms"),
        *await measure_store(),
        *await measure_pages(),
    ]


def _first_output_by(place: Server) -> Callable[[], Awaitable[AsyncSandbox]]:
    async def first_output() -> AsyncSandbox:
        made = await AsyncSandbox.create(server=place)
        assert (await made.commands.run(["/bin/echo", "hello"])).stdout == "hello\n"
        return made

    return first_output


async def _by_sdk(api: Api) -> tuple[float, float]:
    """What a program sees: a new sandbox to its first output, and a durable command."""
    place = Server(api.url, api.token)
    first_output = _first_output_by(place)
    create_ms = await rows.median(12, lambda _: rows.timed(first_output))
    made = await first_output()
    run_ms = await rows.median(200, lambda _: rows.timed(lambda: made.commands.run(["/bin/true"])))
    await place.aclose()
    return create_ms, run_ms


async def _anew(api: Api, data: Path) -> None:
    """Everybody finds a full pool, and nobody's sandboxes are being replaced meanwhile."""
    await api.remove_all()
    await until_warm(data, _WARM)


async def _burst(
    api: Api, data: Path, by: str, first_output: Callable[[], Awaitable[object]]
) -> rows.Row:
    await _anew(api, data)
    times = await asyncio.gather(*(rows.timed(first_output) for _ in range(100)))
    await api.remove_all()
    what = f"100 creates at once by {by}, pool of 100, p50"
    return rows.at_most(what, statistics.median(times), 350, "ms")


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


def _e2b_rows(found: tuple[float, float, float], docker_ms: float) -> list[rows.Row]:
    create, output, command = found
    what = "create and first command, warm pool, by E2B's SDK (docker run)"
    return [
        rows.fraction("create, warm pool, by E2B's SDK (docker run)", create, docker_ms, 10),
        rows.fraction(what, output, docker_ms, 10),
        rows.at_most("command, p50, by E2B's SDK", command, 8, "ms"),
    ]


async def _line_latency(api: Api, sandbox: str) -> float:
    """From the moment a program writes a line, by its own word, until a client has it."""
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
    return statistics.median(delays)


async def measure_store(events: int = 1_000_000, sandboxes: int = 500) -> list[rows.Row]:
    """How reading grows with what there is: pages at both ends of a long log, and a full list."""
    home = Path(tempfile.mkdtemp(prefix="paddock-bench-store-", dir="/var/tmp"))
    try:
        async with open_store(home / "paddock.db") as store:
            team = Team(new_id("tem"), "bench", 0.0)
            await store.write(lambda tx: tx.teams.add(team))
            await _tell(store, team, events)

            async def page(after: int) -> float:
                return await rows.timed(
                    lambda: store.read(lambda tx: tx.events.after(after, 100, team_id=team.id))
                )

            first = await rows.median(50, lambda n: page(n * 100))
            last = await rows.median(50, lambda n: page(events - 200 - n * 100))
            await _fill(store, team, sandboxes)
            wanted, whole = SandboxFilter(), Page(limit=sandboxes)
            listed_ms = await rows.median(
                20,
                lambda _: rows.timed(
                    lambda: store.read(lambda tx: tx.sandboxes.list(team.id, wanted, whole))
                ),
            )
    finally:
        shutil.rmtree(home, ignore_errors=True)
    deep = rows.at_most(f"page of 100 events, at the end of {events:,}", last, 5, "ms")
    return [
        replace(deep, baseline=first, ratio=last / first),
        rows.at_most(f"{sandboxes} sandboxes read as one page", listed_ms, 100, "ms"),
    ]


async def measure_pages(events: int = 1_000_000, sandboxes: int = 500) -> list[rows.Row]:
    """The same through the HTTP API of a server whose database has them before it starts."""
    async with server(0, before=lambda data: _lay_in(data, events, sandboxes)) as (api, _):

        async def read(after: int) -> None:
            told = await api.call("GET", f"/v1/events?cursor={after}&limit=100")
            assert len(told["items"]) == 100

        async def page(after: int) -> float:
            return await rows.timed(lambda: read(after))

        async def whole() -> None:
            listed = await api.call("GET", f"/v1/sandboxes?limit={sandboxes}")
            assert len(listed["items"]) == sandboxes

        first = await rows.median(50, lambda n: page(n * 100))
        last = await rows.median(50, lambda n: page(events - 200 - n * 100))
        listed_ms = await rows.median(20, lambda _: rows.timed(whole))
    deep = rows.at_most(f"page of 100 events by HTTP, at the end of {events:,}", last, 5, "ms")
    return [
        replace(deep, baseline=first, ratio=last / first),
        rows.at_most(f"{sandboxes} sandboxes as one page by HTTP", listed_ms, 100, "ms"),
    ]


async def _lay_in(data: Path, events: int, sandboxes: int) -> None:
    """Of the database alone: nobody has made these."""
    data.mkdir(mode=0o700, parents=True)
    async with open_store(data / "paddock.db") as store:
        clock = SystemClock()
        access = Access(store, clock, Once(store, clock, open_vault(data)))
        await access.begin(lambda token: keep(data / TOKEN_FILE, token))
        team = await store.read(operating_team)
        assert team is not None
        await _tell(store, team, events)
        # Not as running: the server would find out that they are not.
        await _fill(store, team, sandboxes, SandboxState.FAILED)


async def _tell(store: Any, team: Team, count: int) -> None:
    now = time.time()  # what is old is forgotten
    batch = [
        Event(team.id, EventKind.SANDBOX_CHANGED, f"sbx_{n % 100}", now, {"n": n})
        for n in range(10_000)
    ]
    for _ in range(count // len(batch)):
        await store.write(lambda tx: tx.events.append(batch))


async def _fill(
    store: Any, team: Team, count: int, state: SandboxState = SandboxState.RUNNING
) -> None:
    now = time.time()
    records = [
        SandboxRecord(
            id=new_id("sbx"),
            team_id=team.id,
            name=f"box-{number}",
            state=state,
            provider="local",
            created_at=now,
            changed_at=now,
            clock=Clockwork(active_at=now),
            template="base",
            labels={"n": str(number)},
        )
        for number in range(count)
    ]

    def add(tx: Any) -> None:
        for record in records:
            tx.sandboxes.add(record)

    await store.write(add)
