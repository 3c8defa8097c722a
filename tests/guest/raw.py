"""A guest in plain HTTP, for what a well-behaved client would never send."""

import asyncio
import base64
import io
import json
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from yarl import URL

from paddock.domain.guest import GuestAddress


@dataclass(frozen=True)
class Answer:
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Raw:
    """Requests as they are asked for, answers as they come."""

    def __init__(self, address: GuestAddress) -> None:
        self.address = address
        self._base = address.url or "http://guest"

    async def __aenter__(self) -> Self:
        connector = (
            aiohttp.UnixConnector(self.address.socket)
            if self.address.socket
            else aiohttp.TCPConnector()
        )
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()

    async def __call__(
        self,
        verb: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> Answer:
        url = URL(self._base + path, encoded=True)
        body = io.BytesIO(body) if isinstance(body, bytes) else body
        async with self._session.request(verb, url, headers=headers, data=body) as response:
            return Answer(response.status, response.headers, await response.read())

    async def rpc(self, method: str, message: Any, **headers: str) -> Answer:
        fields = {"content-type": "application/json", **_names(headers)}
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await self("POST", f"/{method}", headers=fields, body=body)

    @asynccontextmanager
    async def stream(self, method: str, message: Any, **headers: str) -> AsyncIterator["Frames"]:
        fields = {"content-type": "application/connect+json", **_names(headers)}
        url = URL(f"{self._base}/{method}", encoded=True)
        body = frame(json.dumps(message).encode())
        async with self._session.post(url, headers=fields, data=body) as response:
            yield Frames(response)

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection, to send whatever one likes."""
        if self.address.socket:
            return await asyncio.open_unix_connection(self.address.socket)
        url = URL(self.address.url)
        return await asyncio.open_connection(url.host, url.port)


class Frames:
    """The frames of a stream, with their flags."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> tuple[int, Any]:
        head = await self.response.content.readexactly(5)
        flags, length = struct.unpack(">BI", head)
        return flags, json.loads(await self.response.content.readexactly(length))

    async def all(self) -> list[tuple[int, Any]]:
        frames = []
        while not frames or not frames[-1][0] & 2:
            frames.append(await self.next())
        assert await self.response.content.read() == b""
        return frames


def frame(body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(body)) + body


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def outputs(frames: list[tuple[int, Any]], stream: str) -> bytes:
    """What the frames of a process stream hold of one of its streams."""
    data = (message.get("event", {}).get("data", {}) for _, message in frames)
    return b"".join(base64.b64decode(item[stream]) for item in data if stream in item)


def as_user(name: str) -> str:
    return "Basic " + b64(f"{name}:".encode())


def _names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
