"""What happens to those who still wait for a guest when the session with it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from paddock.domain.errors import Unavailable
from paddock.domain.guest import GuestAddress
from paddock.guest_client import Guest

pytestmark = pytest.mark.timeout(30)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: 100\r\n\r\n"


@pytest_asyncio.fixture(params=["before its head", "in the middle of its body"])
async def slow(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Guest]:
    """A guest whose answer never comes, or never ends."""
    path = str(tmp_path / "s")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # On a busy machine the session may end before a request was sent.
        with closing(writer), suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            if request.param != "before its head":
                writer.write(HEAD + b"\0\0")
                await writer.drain()
            await reader.read()

    async with await asyncio.start_unix_server(answer, path):
        guest = Guest(GuestAddress(socket=path))
        await guest.__aenter__()
        yield guest
        await guest.__aexit__(None, None, None)


async def test_who_waits_for_an_answer_hears_of_the_end(slow: Guest) -> None:
    reading = asyncio.create_task(slow.files.read("/some/file"))
    following = asyncio.create_task(anext(aiter(slow.files.watch("/some/where"))))
    await asyncio.sleep(0.1)
    await slow.__aexit__(None, None, None)
    for task in (reading, following):
        with pytest.raises(Unavailable):
            await asyncio.wait_for(task, 5)


async def test_who_asks_afterwards_is_told_that_it_has_ended(slow: Guest) -> None:
    await slow.__aexit__(None, None, None)
    with pytest.raises(Unavailable, match="the session with the guest has ended"):
        await slow.health()
