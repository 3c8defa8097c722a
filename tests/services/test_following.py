"""Following a command whose guest does not wait with its answers."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from paddock.domain.guest import GuestAddress
from paddock.guest_client import Guest
from paddock.services.commands import _following
from paddock.services.inside import Entered

_EMPTY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
_LATE = b'HTTP/1.1 504 Late\r\ncontent-length: 28\r\n\r\n{"code":"deadline_exceeded"}'


@pytest.mark.parametrize("answer", [_EMPTY, _LATE])
async def test_a_guest_that_answers_nothing_at_once_is_not_asked_all_the_time(
    tmp_path: Path, answer: bytes
) -> None:
    """It is hostile: it could keep the whole server busy."""
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        with suppress(OSError):
            while await reader.read(65_536):
                asked += 1
                writer.write(answer)
        writer.close()

    path = str(tmp_path / "guest.sock")
    async with (
        await asyncio.start_unix_server(serve, path),
        Guest(GuestAddress(socket=path)) as guest,
    ):
        entered = Entered(sandbox=cast(Any, None), guest=cast(Any, guest))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                async for _ in _following(entered, "c", {"stdout": 0}, follow=True):
                    raise AssertionError("nothing was told")
    assert 2 < asked < 50
