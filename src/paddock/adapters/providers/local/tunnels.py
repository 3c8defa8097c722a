"""Ports of sandboxes whose network the host cannot enter: carried by a relay inside each."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

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


def sweep(place: Path) -> None:
    """Sockets of processes that are gone; those that still lead somewhere stay."""
    for path in place.iterdir() if place.is_dir() else ():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue


@dataclass
class Tunnels:
    """Those of one process; they end with it."""

    _open: dict[str, Tunnel] = field(default_factory=dict)

    async def socket(self, place: Path, execute: Sequence[str], port: int) -> str:
        """A socket that leads to a port of the sandbox; `execute` runs a program in it.

        `place` is a directory of the sandbox's own, which nobody else on this host may enter.
        """
        ref = place.name
        if ref not in self._open:
            start = partial(Executed.start, (*execute, *RELAY_ARGV))
            self._open[ref] = Tunnel(start)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = str(place / f"{os.getpid()}-{port}")
        await self._open[ref].listen_unix(path, f"tcp:{port}")
        return path

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
