"""The engine's HTTP API: Docker's own, or Podman's rendering of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import aiohttp

from paddock.adapters.providers.docker import faults
from paddock.adapters.providers.docker.address import EngineAddress
from paddock.domain.errors import Broken, TimedOut, Unavailable

NEWEST = (1, 47)
"""The newest version of the API that this was written for; an older engine is asked in its own."""
OLDEST = (1, 40)
_CALL_S = 60.0
_ANSWER_LIMIT = 32 << 20

Query = Mapping[str, str | int] | Sequence[tuple[str, str | int]]


@dataclass(frozen=True, slots=True)
class About:
    """What an engine says of itself, once."""

    version: str
    """Of the API, as it is spoken."""
    product: str
    podman: bool
    info: Mapping[str, Any]


class Engine:
    """One engine: `async with Engine(address)`. Every failure is an error of the domain."""

    def __init__(self, address: EngineAddress) -> None:
        self.address = address
        self.about = About("", "", False, {})
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Engine":
        self._session = aiohttp.ClientSession(
            connector=self._connector(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        try:
            await self._negotiate()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _connector(self) -> aiohttp.BaseConnector:
        if self.address.socket:
            return aiohttp.UnixConnector(self.address.socket, limit=0)
        return aiohttp.TCPConnector(limit=0, ssl=self.address.tls() or True)

    @property
    def base(self) -> str:
        return self.address.url or "http://engine"

    def path(self, path: str) -> str:
        """One that begins with a slash is complete, such as those of Podman's own API."""
        if path.startswith("/"):
            return path
        return f"/v{self.about.version}/{path}" if self.about.version else f"/{path}"

    async def _negotiate(self) -> None:
        async with self._answer("GET", "_ping", "answer a ping") as answer:
            offered = answer.headers.get("Api-Version", "")
        try:
            major, minor = (int(part) for part in offered.split("."))
        except ValueError as error:
            raise Broken(
                f"what answers at {self.address.text} is not a Docker engine",
                remediation="correct DOCKER_HOST or docker.host",
            ) from error
        if (major, minor) < OLDEST:
            raise Broken(
                f"the engine at {self.address.text} speaks API {offered}; 1.40 is needed",
                remediation="use Docker 20.10 or newer, or Podman 4 or newer",
            )
        version = "{}.{}".format(*min((major, minor), NEWEST))
        self.about = About(version, "", False, {})
        about = await self.get("version", "say its version")
        parts = [part.get("Name", "") for part in about.get("Components") or ()]
        podman = any("podman" in name.lower() for name in parts)
        product = f"{'Podman' if podman else 'Docker'} {about.get('Version', 'unknown')}"
        self.about = About(version, product, podman, await self.get("info", "describe itself"))

    async def get(self, path: str, what: str, **query: str | int) -> Any:
        return await self.call("GET", path, what, query=query)

    async def post(
        self, path: str, what: str, body: Any = None, *, wait: float = _CALL_S, **query: str | int
    ) -> Any:
        return await self.call("POST", path, what, body=body, timeout=wait, query=query)

    async def delete(self, path: str, what: str, **query: str | int) -> Any:
        return await self.call("DELETE", path, what, query=query)

    async def call(
        self,
        method: str,
        path: str,
        what: str,
        *,
        body: Any = None,
        query: Query | None = None,
        timeout: float = _CALL_S,
    ) -> Any:
        """The answer as JSON, or None where there is none."""
        sent = {} if body is None else {"json": body}
        async with self._answer(method, path, what, query=query, timeout=timeout, **sent) as answer:
            content = await _read(answer, what)
        try:
            return json.loads(content) if content.strip() else None
        except ValueError as error:
            raise Broken(f"the engine's answer, asked to {what}, is not JSON") from error

    async def fetch(self, path: str, what: str, *, query: Query, timeout: float = _CALL_S) -> bytes:
        """The answer as it is."""
        async with self._answer("GET", path, what, query=query, timeout=timeout) as answer:
            return await _read(answer, what)

    async def stream(
        self, path: str, what: str, *, query: Query | None = None, timeout: float
    ) -> AsyncIterator[bytes]:
        """An answer of any length, piece by piece."""
        async with self._answer("GET", path, what, query=query, timeout=timeout) as answer:
            async for piece in answer.content.iter_any():
                yield piece

    async def send(
        self,
        method: str,
        path: str,
        what: str,
        *,
        data: bytes | BinaryIO | AsyncIterator[bytes],
        query: Query | None = None,
        timeout: float = _CALL_S,
    ) -> bytes:
        """Upload something. A failure may also be told within a successful answer."""
        headers = {"Content-Type": "application/x-tar"}
        options: dict[str, Any] = {"data": data, "headers": headers}
        async with self._answer(
            method, path, what, query=query, timeout=timeout, **options
        ) as answer:
            content = await _read(answer, what)
        _raise_reported(content, what)
        return content

    async def pull(self, query: Query, what: str, timeout: float) -> None:
        """A long answer of progress lines, of which only a failure matters."""
        async with self._answer(
            "POST", "images/create", what, query=query, timeout=timeout
        ) as answer:
            _raise_reported(await _read(answer, what), what)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Query | None = None,
        timeout: float = _CALL_S,
        **options: Any,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("use the engine within `async with`")
        url = f"{self.base}{self.path(path)}"
        pairs = query.items() if isinstance(query, Mapping) else query or ()
        params = [(name, str(value)) for name, value in pairs]
        try:
            async with (
                asyncio.timeout(timeout),
                self._session.request(method, url, params=params, **options) as answer,
            ):
                if answer.status >= 400:
                    raise faults.of_answer(answer.status, await _read(answer, what), what)
                yield answer
        except TimeoutError as error:
            raise TimedOut(f"the engine did not {what} within {timeout:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise faults.unreachable(self.address, error.os_error) from error
        except OSError as error:
            raise faults.unreachable(self.address, error) from error
        except aiohttp.ClientError as error:
            raise Unavailable(f"the engine broke off when asked to {what}: {error!r}") from error


async def _read(answer: aiohttp.ClientResponse, what: str) -> bytes:
    content = bytearray()
    async for piece in answer.content.iter_any():
        content += piece
        if len(content) > _ANSWER_LIMIT:
            raise Broken(f"the engine's answer, asked to {what}, has no end")
    return bytes(content)


def _raise_reported(content: bytes, what: str) -> None:
    for line in content.splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict) and (said := message.get("error")):
            missing = "not found" in said or "does not exist" in said or "denied" in said
            raise faults.of_message(404 if missing else 500, str(said), what)
