"""A way to a server that breaks when it is told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest


def seeds(few: int, many: int) -> list[Any]:
    """Parameters for breaks at random places: the first few, and the others in soak runs."""
    return [
        pytest.param(seed, marks=pytest.mark.soak if seed >= few else ()) for seed in range(many)
    ]


@dataclass
class Way:
    """Passes bytes on. `cut_after` counts answers' bytes until every connection is cut."""

    target: tuple[str, int]
    port: int = 0
    cut_after: list[int] = field(default_factory=list)
    """Each entry is used once, for the next connection."""
    cut_sent_after: list[int] = field(default_factory=list)
    """The same by what is sent to the server."""
    connections: int = 0
    cuts: int = 0
    is_shut: bool = False
    _under_way: set[asyncio.Future[None]] = field(default_factory=set)

    def shut(self) -> None:
        """Cut what is open, and let nobody through until `is_shut` is taken back."""
        self.is_shut = True
        for each in self._under_way:
            each.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.is_shut:
            writer.close()
            return
        limit = self.cut_after.pop(0) if self.cut_after else None
        sent = self.cut_sent_after.pop(0) if self.cut_sent_after else None
        far_reader, far_writer = await asyncio.open_connection(*self.target)
        there = asyncio.ensure_future(_pump(reader, far_writer, sent))
        back = asyncio.ensure_future(_pump(far_reader, writer, limit))
        self._under_way.add(back)
        await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        self._under_way.discard(back)
        self.cuts += limit is not None or sent is not None
        for task in (there, back):
            task.cancel()
        await asyncio.gather(there, back, return_exceptions=True)
        for each in (writer, far_writer):
            each.close()
            with suppress(OSError):
                await each.wait_closed()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None
) -> None:
    while data := await reader.read(65536):
        part = data if limit is None else data[:limit]
        writer.write(part)
        await writer.drain()
        if limit is not None:
            limit -= len(part)
            if limit <= 0:
                return


@asynccontextmanager
async def unreliable(url: str) -> AsyncIterator[Way]:
    parts = urlsplit(url)
    way = Way((parts.hostname or "", parts.port or 0))
    listener = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    way.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield way
