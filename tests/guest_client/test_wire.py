"""Connections to a guest are kept, and not for longer than the guest keeps them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from paddock.guest import server
from paddock.guest_client import wire
from paddock.guest_client.wire import Wire

pytestmark = pytest.mark.timeout(30)


class Listener:
    """A guest that answers, and closes what is idle for longer than `patience_s`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.open = self.seen = 0
        self.patience_s = 60.0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen += 1
        self.open += 1
        try:
            while await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self.patience_s):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                await writer.drain()
        except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            writer.close()
        finally:
            self.open -= 1


@pytest_asyncio.fixture
async def guest(tmp_path: Path) -> AsyncIterator[Listener]:
    made = Listener(str(tmp_path / "s"))
    async with await asyncio.start_unix_server(made.answer, made.path):
        yield made


async def ask(line: Wire) -> tuple[int, bytes]:
    return await line.post("p", {}, b"", timeout=5, limit=100)


async def test_a_connection_is_used_again_until_it_is_old(guest: Listener) -> None:
    asked = Wire(guest.path, idle_s=0.3)
    for _ in range(5):
        assert await ask(asked) == (200, b"{}")
    assert guest.seen == 1
    await asyncio.sleep(0.4)
    assert await ask(asked) == (200, b"{}")
    assert guest.seen == 2
    asked.close()


async def test_those_that_nobody_needs_any_more_are_closed(guest: Listener) -> None:
    """A burst leaves many; the one that is used does not keep the others open."""
    asked = Wire(guest.path, idle_s=0.3)
    await asyncio.gather(*(ask(asked) for _ in range(8)))
    assert guest.seen == guest.open == 8
    for _ in range(10):
        await asyncio.sleep(0.06)
        await ask(asked)
    await asyncio.sleep(0.05)
    assert (guest.seen, guest.open) == (8, 1)
    asked.close()


async def test_no_call_is_lost_to_a_guest_that_closes_what_is_idle(guest: Listener) -> None:
    """The pauses between calls are around the guest's limit, where a call and its end cross."""
    guest.patience_s = 0.1
    asked = Wire(guest.path, idle_s=0.05)
    for number in range(40):
        assert await ask(asked) == (200, b"{}")
        await asyncio.sleep(0.08 + number * 0.001)
    asked.close()


def test_the_guest_waits_at_least_twice_as_long() -> None:
    assert 2 * wire.IDLE_S <= server._IDLE_LIMIT
