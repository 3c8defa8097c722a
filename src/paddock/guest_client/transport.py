"""How the guest is spoken to: Connect-JSON and plain HTTP over one kept-alive session."""

import asyncio
import base64
import io
import json
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from paddock.domain import tracing
from paddock.domain.errors import Broken, LimitExceeded, TimedOut, Unavailable
from paddock.domain.guest import GuestAddress
from paddock.guest_client import answers
from paddock.guest_client.answers import Message
from paddock.guest_client.wire import Wire

ANSWER_LIMIT = 4 << 20
FRAME_LIMIT = 4 << 20
CALL_TIMEOUT = 30.0
_CONNECT_TIMEOUT = 5.0
_PIECE = 256 << 10
_JSON = {"content-type": "application/json"}
_STREAM = {"content-type": "application/connect+json"}
_END = 2
_ENDED = "the session with the guest has ended"


class Transport:
    """One session with one guest. Every failure is an error of the domain.

    Its end is told to those who still read: aiohttp would leave them waiting for ever.
    """

    def __init__(self, address: GuestAddress) -> None:
        self._address = address
        self._session: aiohttp.ClientSession | None = None
        self._reading: set[aiohttp.ClientResponse] = set()
        # Across a network aiohttp's care for TLS, proxies and names is worth its price.
        self._wire = Wire(address.socket) if address.socket else None
        self._fields = dict(address.headers)
        if address.token:
            self._fields["x-access-token"] = address.token
        self._base = address.url.rstrip("/") if address.url else "http://guest"

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=self._connector(),
            headers=self._fields,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("user-agent", "accept-encoding", "accept"),
            read_bufsize=256 << 10,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._wire is not None:
            self._wire.close()
        for answer in self._reading:
            answer.content.set_exception(aiohttp.ClientConnectionError(_ENDED))
        if self._session is not None:
            await self._session.close()

    async def call(
        self,
        method: str,
        message: Mapping[str, Any],
        *,
        user: str = "",
        timeout: float = CALL_TIMEOUT,
        limit: int = ANSWER_LIMIT,
    ) -> Message:
        """A unary call, e.g. `paddock.Guest/Exec`."""
        headers = {**_JSON, **basic_user(user)}
        said = await self._post(method, headers, dump(message), timeout=timeout, limit=limit)
        return answers.parse_object(said, method)

    async def post_plain(self, path: str, message: Mapping[str, Any]) -> None:
        """A route that answers with nothing but success."""
        await self._post(path, _JSON, dump(message), timeout=CALL_TIMEOUT, limit=ANSWER_LIMIT)

    async def _post(
        self, path: str, headers: Mapping[str, str], body: bytes, *, timeout: float, limit: int
    ) -> bytes:
        if self._wire is None or len(body) > _PIECE:
            async with self.request(
                "POST", path, headers=headers, body=body, timeout=timeout
            ) as answer:
                return await read_all(answer, limit, path)
        self._open_session(path)
        with tracing.call(f"guest {path}") as span:
            fields = {**self._fields, **headers, **_trace(span)}
            status, said = await self._wire.post(path, fields, body, timeout=timeout, limit=limit)
        if status >= 300:
            raise answers.error_of(status, said, path)
        return said

    async def stream(
        self,
        method: str,
        message: Mapping[str, Any],
        *,
        user: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Message]:
        """A server stream. Ends when the guest says that it is whole; raises when it is not."""
        fields = {**_STREAM, **basic_user(user), **(headers or {})}
        body = frame(0, dump(message))
        async with self.request("POST", method, headers=fields, body=body) as answer:
            async for flags, data in _frames(answer, method):
                parsed = answers.parse_object(data, method)
                if not flags & _END:
                    yield parsed
                    continue
                if "error" in parsed:
                    raise answers.error_in(parsed, method)
                return
        raise Unavailable(f"{method}: the stream broke off")

    @asynccontextmanager
    async def request(
        self,
        verb: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        body: bytes | AsyncIterator[bytes] | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Any request; an answer other than success raises."""
        session = self._open_session(path)
        url = URL(f"{self._base}/{path}{_encode_query(query)}", encoded=True)
        # In one piece a large body would hold up everything else on this loop.
        data = io.BytesIO(body) if isinstance(body, bytes) and len(body) > _PIECE else body
        try:
            with tracing.call(f"guest {path}") as span:
                headers = {**(headers or {}), **_trace(span)}
                async with (
                    asyncio.timeout(timeout),
                    session.request(
                        verb, url, headers=headers, data=data, allow_redirects=False
                    ) as answer,
                ):
                    if answer.status >= 300:
                        said = await read_all(answer, ANSWER_LIMIT, path)
                        raise answers.error_of(answer.status, said, path)
                    with self._being_read(answer):
                        yield answer
        except aiohttp.ClientConnectionError as error:
            raise Unavailable(f"{path}: the guest cannot be reached: {error}") from error
        except aiohttp.ClientPayloadError as error:
            raise Unavailable(f"{path}: the guest broke off its answer") from error
        except TimeoutError as error:
            raise TimedOut(f"{path}: the guest did not answer within {timeout} s") from error
        except OSError as error:
            raise Unavailable(f"{path}: the guest cannot be reached: {error}") from error
        except aiohttp.ClientError as error:
            raise Broken(f"{path}: the guest does not speak HTTP: {error}") from error

    @contextmanager
    def _being_read(self, answer: aiohttp.ClientResponse) -> Iterator[None]:
        self._reading.add(answer)
        try:
            yield
        finally:
            self._reading.discard(answer)

    def _open_session(self, path: str) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use the guest's client within `async with`")
        if self._session.closed:
            raise Unavailable(f"{path}: {_ENDED}")
        return self._session

    def _connector(self) -> aiohttp.BaseConnector:
        if self._address.socket:
            return aiohttp.UnixConnector(self._address.socket, limit=0, keepalive_timeout=300)
        return aiohttp.TCPConnector(limit=0, keepalive_timeout=300)


def _trace(span: tracing.Span | None) -> dict[str, str]:
    return {} if span is None else {"traceparent": span.traceparent}


def dump(message: Mapping[str, Any]) -> bytes:
    """ASCII with escapes, so that names which are not UTF-8 survive as lone surrogates."""
    return json.dumps(message, separators=(",", ":")).encode("ascii")


def _encode_query(query: Mapping[str, str] | None) -> str:
    """Byte for byte: a path may hold anything but NUL."""
    pairs = [f"{k}={quote(v.encode('utf-8', 'surrogateescape'))}" for k, v in (query or {}).items()]
    return "?" + "&".join(pairs) if pairs else ""


def frame(flags: int, body: bytes) -> bytes:
    return struct.pack(">BI", flags, len(body)) + body


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def basic_user(user: str) -> dict[str, str]:
    """E2B's way to name the user of a call: HTTP Basic without a password."""
    if not user:
        return {}
    return {"authorization": "Basic " + encode(f"{user}:".encode())}


async def read_all(answer: aiohttp.ClientResponse, limit: int, what: str) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for data in answer.content.iter_any():
        size += len(data)
        if size > limit:
            raise LimitExceeded(f"{what}: the guest's answer is larger than {limit} bytes")
        pieces.append(data)
    return b"".join(pieces)


async def _frames(answer: aiohttp.ClientResponse, what: str) -> AsyncIterator[tuple[int, bytes]]:
    buffer = bytearray()
    async for data in answer.content.iter_any():
        buffer += data
        while len(buffer) >= 5:
            flags, length = struct.unpack_from(">BI", buffer)
            if length > FRAME_LIMIT:
                raise Broken(f"{what}: the guest sent a frame of {length} bytes")
            if len(buffer) < 5 + length:
                break
            yield flags, bytes(buffer[5 : 5 + length])
            del buffer[: 5 + length]
