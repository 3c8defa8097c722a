"""A control plane with its SSH gateway, and the real OpenSSH clients to come in with."""

import asyncio
import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paddock.interfaces.ssh.config import GatewayLimits
from paddock.settings import ServerConfig
from paddock.wiring.ssh import ssh_listening
from tests.control_plane import Answer, Client, Plane, disposable
from tests.harness.ports import free_port

DEADLINE_S = 60.0


@dataclass(frozen=True)
class Done:
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode()

    @property
    def said(self) -> str:
        return self.stderr.decode()


@dataclass
class Door:
    """The gateway of a control plane, as somebody at a keyboard finds it."""

    plane: Plane
    port: int
    folder: Path
    box: str = ""
    token: str = field(default="", repr=False)

    async def access(self, who: Client | None = None, box: str = "", **wish: Any) -> Answer:
        wish = wish or {"reveal": True}
        path = f"/v1/sandboxes/{box or self.box}/ssh"
        return await (who or self.plane.admin).post(path, wish)

    def options(self, *more: str) -> list[str]:
        common = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "INFO",
            "Port": str(self.port),
            "IdentityAgent": "none",
            "NumberOfPasswordPrompts": "1",
        }
        return ["-F", "/dev/null", *(f"-o{name}={value}" for name, value in common.items()), *more]

    async def ssh(
        self, *words: str, user: str = "", options: tuple[str, ...] = (), **more: Any
    ) -> Done:
        """As who has the token, which stands for the name unless another is given."""
        to = f"{user or self.token}@127.0.0.1"
        return await self.run("ssh", *self.options(*options), to, *words, **more)

    async def with_password(self, user: str, password: str, *words: str) -> Done:
        asks = self.folder / "askpass"
        asks.write_text('#!/bin/sh\nprintf "%s\\n" "$THE_PASSWORD"\n')
        asks.chmod(0o700)
        env = {"SSH_ASKPASS": str(asks), "SSH_ASKPASS_REQUIRE": "force", "THE_PASSWORD": password}
        return await self.ssh(*words, user=user, env=env)

    async def run(self, *argv: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": str(self.folder), **(env or {})},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(DEADLINE_S):
                stdout, stderr = await process.communicate(stdin)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        assert process.returncode is not None
        return Done(process.returncode, stdout, stderr)

    async def sftp(self, *lines: str) -> Done:
        batch = "".join(f"{line}\n" for line in lines).encode()
        to = f"{self.token}@127.0.0.1"
        return await self.run("sftp", *self.options("-b", "-"), to, stdin=batch)

    async def key(self, name: str = "key") -> tuple[Path, str]:
        """A new key pair: where the private one is, and the public one."""
        path = self.folder / name
        done = await self.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
        assert done.code == 0, done.said
        return path, path.with_suffix(".pub").read_text()


@asynccontextmanager
async def open_door(plane: Plane, limits: GatewayLimits | None = None) -> AsyncIterator[Door]:
    config = ServerConfig(ssh_port=free_port(), data_dir=plane.place / "data")
    folder = Path(tempfile.mkdtemp(prefix="pd-ssh-"))
    try:
        async with ssh_listening(config, plane.services, limits):
            yield Door(plane, config.ssh_port, folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
async def plane():
    async with disposable() as made:
        yield made


@pytest.fixture(scope="module")
async def gate(plane):
    async with open_door(plane, GatewayLimits(look_every_s=0.2, failures=1000)) as door:
        yield door


@pytest.fixture
async def door(gate):
    """With a running sandbox and a token for it."""
    made = await gate.plane.admin.post("/v1/sandboxes", {"template": "plain"})
    assert made.status == 201, made.body
    gate.box = made["id"]
    answer = await gate.access()
    assert answer.status == 201, answer.body
    gate.token = answer["token"]
    yield gate
    await gate.plane.admin.delete(f"/v1/sandboxes/{made['id']}?force=true")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
