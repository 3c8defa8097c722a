"""TLS servers of other stacks, each a program; those in Go and Rust are built once per machine."""

import asyncio
import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.conftest import Need
from tests.harness.disk import CACHE
from tests.harness.ports import free_port

_HERE = Path(__file__).parent


def built(stack: str, need: Need) -> Path:
    """The program of that stack."""
    sources = {
        "go": [_HERE / "server.go"],
        "rustls": [_HERE / "rustls" / "Cargo.toml", _HERE / "rustls" / "src" / "main.rs"],
    }[stack]
    tool = {"go": "go", "rustls": "cargo"}[stack]
    if shutil.which(tool) is None:
        need(tool, "not installed")
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:12]
    target = CACHE / "tls-servers" / f"{stack}-{digest}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            _build(stack, draft)
        except subprocess.CalledProcessError as error:
            need(f"{stack}'s TLS", f"it could not be built: {error.stderr.decode()[-300:]}")
        draft.rename(target)
    return target


def _build(stack: str, draft: Path) -> None:
    if stack == "go":
        command = ["go", "build", "-o", str(draft), str(_HERE / "server.go")]
        subprocess.run(command, check=True, capture_output=True, cwd=_HERE)
        return
    place = draft.with_suffix(".build")
    manifest = str(_HERE / "rustls" / "Cargo.toml")
    shutil.copytree(_HERE / "rustls", place, dirs_exist_ok=True)
    try:
        manifest = str(place / "Cargo.toml")
        command = ["cargo", "build", "--quiet", "--manifest-path", manifest]
        subprocess.run(command, check=True, capture_output=True)
        shutil.copy(place / "target" / "debug" / "tls-server", draft)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@asynccontextmanager
async def of_stack(stack: str, certificate: Path, need: Need) -> AsyncIterator[int]:
    """The port on which a server of that stack completes handshakes."""
    if stack == "gnutls":
        if shutil.which("gnutls-serv") is None:
            need("gnutls-serv", "not installed")
        port = free_port()
        files = ["--x509keyfile", str(certificate), "--x509certfile", str(certificate)]
        command = ["gnutls-serv", "--quiet", "--echo", "--port", str(port), *files]
        async with _running(command):
            yield await _until_open(port)
    else:
        async with _running([str(built(stack, need)), str(certificate)]) as child:
            assert child.stdout is not None
            yield int(await child.stdout.readline())


@asynccontextmanager
async def _running(command: list[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    quiet = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(
        *command, stdin=quiet, stdout=asyncio.subprocess.PIPE, stderr=quiet
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def _until_open(port: int) -> int:
    async with asyncio.timeout(20):
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return port
            await asyncio.sleep(0.02)
