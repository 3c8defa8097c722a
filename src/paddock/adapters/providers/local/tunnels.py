"""Ports of sandboxes whose network the host cannot enter: carried by a relay inside each."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from paddock.adapters.providers.relay import CHUNK
from paddock.adapters.providers.tunnel import RELAY_ARGV, Tunnel

_PIPE = asyncio.subprocess.PIPE


class Executed:
    """A program that the runtime has started in a sandbox, by its standard streams."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    @classmethod
    async def start(cls, argv: Sequence[str]) -> "Executed":
        nobody = asyncio.subprocess.DEVNULL
        return cls(
            await asyncio.create_subprocess_exec(
                *argv, stdin=_PIPE, stdout=_PIPE, stderr=nobody, start_new_session=True
            )
        )

    async def read(self) -> bytes:
        return await self._stdout.read(CHUNK)

    async def write(self, data: bytes) -> None:
        self._stdin.write(data)
        await self._stdin.drain()

    def abort(self) -> None:
        self._stdin.close()  # the relay ends by itself; in a sandbox that is frozen it cannot
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


@dataclass
class Tunnels:
    """Those of one process; they end with it."""

    _open: dict[str, Tunnel] = field(default_factory=dict)

    async def url(self, ref: str, execute: Sequence[str], port: int) -> str:
        """A port of the sandbox on this host's loopback; `execute` runs a program in it."""
        if ref not in self._open:
            start = partial(Executed.start, (*execute, *RELAY_ARGV))
            self._open[ref] = Tunnel(start)
        return f"http://127.0.0.1:{await self._open[ref].listen_tcp(f'tcp:{port}')}"

    @asynccontextmanager
    async def silent(self, ref: str) -> AsyncIterator[None]:
        """No relay is in the sandbox meanwhile; who connects waits, and has a new one after."""
        if ref not in self._open:
            yield
            return
        async with self._open[ref].hung_up():
            yield

    async def forget(self, ref: str) -> None:
        if (tunnel := self._open.pop(ref, None)) is not None:
            await tunnel.aclose()

    async def aclose(self) -> None:
        for ref in tuple(self._open):
            await self.forget(ref)
