"""What is under way when a server is ended: work that goes on by itself, or is asked for again."""

import asyncio
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp

from tests.wiring_server import Server

_PIECE = 128 << 10
_PIECES = 24
"""Three megabytes: more than a guest holds back before it opens the file."""


class Follower:
    """Somebody who reads a command's output and comes back at the cursor when it breaks off."""

    def __init__(self, made: Server, path: str) -> None:
        self.made, self.path = made, path
        self.text, self.code = "", None

    async def follow(self) -> None:
        while self.code is None:
            with suppress(aiohttp.ClientError, ConnectionError, AssertionError, TimeoutError):
                await self._read_on()
            await asyncio.sleep(0.05)

    async def _read_on(self) -> None:
        path = f"{self.path}?format=ndjson&cursor=stdout:{len(self.text)}"
        async for line in self.made.admin.lines("GET", path):
            if line["type"] == "output":
                assert line["offset"] == len(self.text), "a byte was lost or came twice"
                self.text += line["data"]
            elif line["type"] == "exit":
                self.code = line["exit_code"]
                return
            elif line["type"] == "error":
                return


async def insist(act: Callable[[], Awaitable[Any]]) -> Any:
    """Until it is answered, as a client that holds a key may."""
    async with asyncio.timeout(60):
        while True:
            with suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
                return await act()
            await asyncio.sleep(0.05)


async def once(act: Callable[[], Awaitable[Any]]) -> Any:
    """Whatever becomes of it; None when nobody answered."""
    with suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
        return await act()
    return None


class Uploads:
    """Files and an archive on their way into one sandbox, slowly enough to be caught there."""

    def __init__(self, made: Server, sandbox: str) -> None:
        self._made = made
        self._path = f"/v1/sandboxes/{sandbox}"
        self.broken = 0
        """How many have been cut off on their way."""

    def begin(self, number: int) -> list[asyncio.Task[Any]]:
        """A new file, a file instead of another, and an archive."""
        wishes = [
            lambda: self._put("files", f"new-{number}", _content(number)),
            lambda: self._put("files", "same", _content(number)),
            lambda: self._put("archive", f"tree-{number}", _archive(number)),
        ]
        return [asyncio.create_task(once(wish)) for wish in wishes]

    async def settle(self, number: int, answers: list[Any]) -> None:
        """Each is whole or absent, and nothing else is there; then all of it is sent again."""
        fresh, same, tree = (answer is not None and answer.status == 200 for answer in answers)
        self.broken += [fresh, same, tree].count(False)
        found = await self._settled()
        whole, before = _digest(_content(number)), _digest(_content(number - 1))
        assert found.pop(f"./new-{number}", None if not fresh else "lost") in (None, whole)
        kept = found.pop("./same", None)
        assert kept in ((whole,) if same else (before, whole)) or (kept is None and number == 0)
        brought = {name for name in found if name.startswith(f"./tree-{number}/")}
        assert len(brought) in ((_MEMBERS,) if tree else (0, _MEMBERS)), brought
        others = {name for name in found if not name.startswith("./tree-")}
        assert others == {f"./new-{earlier}" for earlier in range(number)}, "something was left"
        for again in self.begin(number):
            answer = await again
            assert answer is not None
            assert answer.status == 200, answer.body
        assert (await self._settled())["./same"] == whole

    async def _settled(self) -> dict[str, str]:
        """The files of the directory with what is in them, once nothing changes there any more."""
        script = "mkdir -p up && cd up && find . -type f -exec sha256sum {} +"
        wish = {"cmd": ["sh", "-c", script]}
        before: dict[str, str] | None = None
        async with asyncio.timeout(30):
            while True:
                ran = await insist(lambda: self._made.admin.post(f"{self._path}/exec", wish))
                lines = [line.split(maxsplit=1) for line in ran["stdout"].splitlines()]
                found = {name: digest for digest, name in lines}
                if found == before and not ran["stderr"]:
                    return found
                before = found
                await asyncio.sleep(0.1)

    async def _put(self, what: str, name: str, content: bytes) -> Any:
        path = f"{self._path}/{what}?path=/home/user/up/{name}"
        return await self._made.admin.call("PUT", path, data=_slowly(content))


_MEMBERS = 12


def _content(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest() * (_PIECE * _PIECES // 32)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _archive(number: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member in range(_MEMBERS):
            info = tarfile.TarInfo(f"{number}/{member}")
            info.size = _PIECE
            tar.addfile(info, io.BytesIO(bytes([member]) * _PIECE))
    return buffer.getvalue()


async def _slowly(content: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(content), _PIECE):
        yield content[at : at + _PIECE]
        await asyncio.sleep(0.008)
