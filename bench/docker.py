"""The Docker engine as the yardstick: a daemon of its own, the same root, the same limits."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench import rows

IMAGE = "paddock-bench"
LIMITS = ("--memory", "1g", "--cpus", "1", "--pids-limit", "1024", "--network", "none")


@dataclass
class Engine:
    """A private daemon and a client of its API. Baselines are measured when first asked for."""

    socket: Path
    session: aiohttp.ClientSession
    _idle: str = ""
    _run_ms: float = 0.0
    _exec_ms: float = 0.0

    async def cli(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *("docker", "-H", f"unix://{self.socket}", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"docker {arguments[0]}: {errors.decode()}")
        return output.decode().strip()

    async def run_once(self) -> None:
        await self.cli("run", "--rm", *LIMITS, IMAGE, "/bin/echo", "hello")

    async def run_ms(self) -> float:
        """How long a container takes to its first output, in the middle."""
        if not self._run_ms:
            await self.run_once()
            self._run_ms = await rows.median(9, lambda _: rows.timed(self.run_once))
        return self._run_ms

    async def idle(self) -> str:
        """A container that does nothing."""
        if not self._idle:
            self._idle = await self.cli("run", "-d", *LIMITS, IMAGE, "sleep", "3600")
        return self._idle

    async def exec_ms(self) -> float:
        """How long a command in a running container takes, in the middle."""
        if not self._exec_ms:
            container = await self.idle()
            await self.exec_true(container)
            self._exec_ms = await rows.median(
                20, lambda _: rows.timed(lambda: self.exec_true(container))
            )
        return self._exec_ms

    async def exec_true(self, container: str) -> None:
        async with self.session.post(
            f"http://engine/containers/{container}/exec",
            json={"Cmd": ["true"], "AttachStdout": True},
        ) as answer:
            identifier = (await answer.json())["Id"]
        async with self.session.post(
            f"http://engine/exec/{identifier}/start", json={"Detach": False, "Tty": False}
        ) as answer:
            await answer.read()
        async with self.session.get(f"http://engine/exec/{identifier}/json") as answer:
            assert (await answer.json())["ExitCode"] == 0

    async def shim_pss_kib(self, container: str) -> float:
        pid = int(await self.cli("inspect", "-f", "{{.State.Pid}}", container))
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return pss_kib(pid) + pss_kib(parent)


def pss_kib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return float(line.split()[1])
    return 0.0


@contextlib.asynccontextmanager
async def engine(root_file_system: Path) -> AsyncIterator[Engine]:
    """A daemon with the image, ended and removed afterwards."""
    home = Path(tempfile.mkdtemp(prefix="paddock-bench-docker-"))
    config = home / "daemon.json"
    config.write_text(json.dumps({"storage-driver": "overlay2", "iptables": False}))
    with (home / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [
                "dockerd",
                f"--config-file={config}",
                f"--host=unix://{home}/docker.sock",
                f"--data-root={home}/data",
                f"--exec-root={home}/exec",
                f"--pidfile={home}/pid",
                "--bridge=none",
                # Where the host's containerd runs, dockerd uses it.
                "--containerd-namespace=paddock-bench",
                "--containerd-plugins-namespace=paddock-bench-plugins",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        await _await_socket(home / "docker.sock", daemon, home / "log")
        connector = aiohttp.UnixConnector(str(home / "docker.sock"))
        async with aiohttp.ClientSession(connector=connector) as session:
            made = Engine(home / "docker.sock", session)
            await _import(made, root_file_system)
            try:
                yield made
            finally:
                if containers := (await made.cli("ps", "-aq")).split():
                    await made.cli("rm", "-f", *containers)
    finally:
        daemon.terminate()
        daemon.wait(30)
        shutil.rmtree(home, ignore_errors=True)


async def _await_socket(socket: Path, daemon: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 30
    while not socket.exists():
        if daemon.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"dockerd did not start: {log.read_text()[-1000:]}")
        await asyncio.sleep(0.1)


async def _import(made: Engine, root: Path) -> None:
    script = f"tar -C {root} -c . | docker -H unix://{made.socket} import - {IMAGE}"
    process = await asyncio.create_subprocess_shell(script, stdout=asyncio.subprocess.DEVNULL)
    if await process.wait() != 0:
        raise RuntimeError("the root file system could not be imported")
