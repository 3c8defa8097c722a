"""The joined guest: forked on the host, in a real sandbox of the local provider."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from paddock.adapters.providers.local.bundle import GUEST_STATE
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.adapters.providers.local.records import Machine
from paddock.domain.guest import GuestAddress
from paddock.domain.sandbox import Resources, SandboxState
from paddock.ports.provider import Ref, SandboxSpec
from tests.engines import open_local
from tests.guest.forms import SANDBOX_ID


class JoinedGuest:
    """A sandbox of the template `base`; a guest that was killed comes back by a new start of it."""

    address: GuestAddress
    state_dir = GUEST_STATE

    def __init__(self, _rootfs: Path) -> None:
        self._stack = AsyncExitStack()
        self._refs: list[Ref] = []
        self._provider: LocalProvider

    async def __aenter__(self) -> Self:
        self._provider = await self._stack.enter_async_context(open_local())
        spec = SandboxSpec(template="base", resources=Resources(cpus=2.0, pids=4096))
        await self._settle_on((await self._provider.create(_key(), spec)).ref)
        return self

    async def __aexit__(self, *error: object) -> None:
        for ref in self._refs:
            await self._provider.destroy(ref)
        await self._stack.aclose()

    async def _settle_on(self, ref: Ref) -> None:
        self._refs.append(ref)
        self.address = await self._provider.guest(ref)

    async def start(self, *, sandbox_id: str = SANDBOX_ID) -> None:
        """With another id it is a fork of the sandbox: that is how a disk comes to a new one."""
        seen = await self._provider.observe(self._refs[-1])
        if sandbox_id != SANDBOX_ID:
            seen = await self._provider.fork(seen.ref, _key(), SandboxSpec())
            await self._settle_on(seen.ref)
        elif seen.state is not SandboxState.RUNNING:
            await self._provider.start(seen.ref)

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    async def _end(self, number: int) -> None:
        machine = self._machine()
        os.kill(machine.guest.pid, number)
        async with asyncio.timeout(15):
            while machine.guest.alive():
                await asyncio.sleep(0.01)

    def _machine(self) -> Machine:
        record = self._provider._life.records.read(self._refs[-1].id)
        assert record is not None
        assert record.machine is not None
        return record.machine

    def host_pid(self) -> int:
        return self._machine().guest.pid

    @property
    def token(self) -> str:
        return self.address.token

    @property
    def inner_pid(self) -> int:
        lines = Path(f"/proc/{self.host_pid()}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("NSpid")).split()[-1])


def _key() -> str:
    return f"joined-{os.getpid()}-{os.urandom(6).hex()}"
