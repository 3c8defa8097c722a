"""`paddock up` as a process of its own, for tests that end it as a crash would."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import LocalProvider
from tests.control_plane import Client
from tests.databases import furnish_database
from tests.engines import furnish
from tests.harness import disk
from tests.harness.ports import free_port

_PADDOCK = (sys.executable, "-m", "paddock")


class Server:
    """A control plane on its own data directory, which can be ended and started again."""

    def __init__(
        self, data: Path, session: aiohttp.ClientSession, port: int | None = None, **settings: str
    ) -> None:
        self.data = data
        self._settings = {f"PADDOCK_{name.upper()}": value for name, value in settings.items()}
        self.port = free_port() if port is None else port
        self._session = session
        self._place: tuple[str, ...] = (f"--data-dir={data}",)
        self._process: asyncio.subprocess.Process | None = None
        self.under: tuple[str, ...] = ()
        """A program that the server is started by and that becomes it, such as `strace -D`."""
        self.starts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def admin(self) -> Client:
        return Client(self.url, (self.data / "admin-token").read_text().strip(), self._session)

    def beside(self) -> "Server":
        """Another process on the same database, host and key, with a directory of its own."""
        own = self.data.parent / "beside"
        own.mkdir(exist_ok=True)
        for name in ("admin-token", "master-key"):
            shutil.copy(self.data / name, own / name)
        made = Server(own, self._session)
        made._settings = {**self._settings, "PADDOCK_LOCAL__DATA_DIR": str(self.data)}
        made._place = ()
        made._settings["PADDOCK_SERVER__DATA_DIR"] = str(own)
        return made

    async def start(self) -> None:
        """Until it says that it is ready."""
        environment = {
            **os.environ,
            "PADDOCK_LOCAL__TEMPLATE_CACHE": str(disk.TEMPLATES),
            **self._settings,
        }
        with (self.data.parent / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.under,
                *_PADDOCK,
                "up",
                *self._place,
                f"--port={self.port}",
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(120):
            line = await self._process.stdout.readline()
        if self.port == 0 and line.startswith(b"ready "):
            self.port = int(line.rpartition(b":")[2])
        host = self._settings.get("PADDOCK_SERVER__HOST", "127.0.0.1")
        expected = f"ready http://{host}:{self.port}\n".encode()
        assert line == expected, (line, self.log()[-2000:])
        self.starts += 1

    async def restart_if_ended(self) -> None:
        """For tests that share a server: the one before may have failed while it was down."""
        if self._process is None or self._process.returncode is not None:
            await self.start()

    async def kill(self) -> None:
        """As a crash would: without a word."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> int:
        """As an operator would; the exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(15):
            return await self._process.wait()

    def log(self) -> str:
        return (self.data.parent / "log").read_text()


@asynccontextmanager
async def server(
    port: int | None = None, *, under: tuple[str, ...] = (), **settings: str
) -> AsyncIterator[Server]:
    """Running with these settings; in the end nothing of it remains, its sandboxes included."""
    place = disk.new_directory()
    data = place / "data"
    try:
        furnish(data, "base")
        if not settings.get("server__database"):
            await furnish_database(data)
        async with aiohttp.ClientSession() as session:
            made = Server(data, session, port, **settings)
            made.under = under
            await made.start()
            try:
                yield made
            finally:
                with suppress(Exception):
                    await made.stop()
                await _remove_sandboxes(data)
    finally:
        disk.remove(place)


async def _remove_sandboxes(data: Path) -> None:
    provider = await LocalProvider.open(LocalConfig(data_dir=data))
    try:
        async for found in provider.find({}):
            await provider.destroy(found.ref)
    finally:
        await provider.aclose()


@asynccontextmanager
async def at_provider(
    data: Path, egress: EgressConfig | None = None
) -> AsyncIterator[LocalProvider]:
    """As somebody would who knows nothing of Paddock's records. `egress` as the server has it: they
    share a gateway."""
    provider = await LocalProvider.open(LocalConfig(data_dir=data), egress=egress)
    try:
        yield provider
    finally:
        await provider.aclose()


async def provider_refs(data: Path) -> set[str]:
    """What the provider really has, whatever the control plane believes."""
    async with at_provider(data) as provider:
        return {found.ref.id async for found in provider.find({})}


async def destroy(data: Path, sandbox_id: str, egress: EgressConfig | None = None) -> None:
    """Its machine is gone, and nobody of Paddock did it."""
    async with at_provider(data, egress) as provider:
        async for found in provider.find({"paddock.sandbox": sandbox_id}):
            await provider.destroy(found.ref)
