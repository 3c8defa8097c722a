"""The server's API over HTTP: one pool of connections, and retries that do nothing twice."""

import asyncio
import io
import json as text
import random
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote, urlencode

import aiohttp

from paddock import __version__
from paddock.domain.errors import (
    InvalidRequest,
    LimitExceeded,
    PaddockError,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
)
from paddock.interfaces.client import failures
from paddock.interfaces.client.place import find_place
from paddock.interfaces.client.pool import Pool
from paddock.interfaces.client.portal import ERRAND

PATIENCE_S = 60.0
"""How long a server that has answered before may be gone: a restart takes seconds."""
_CONNECT_S = 10.0
_ANSWER_S = 660.0
"""Longer than the server's own longest deadline for anything but a command."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_RATE_S = 5.0
_BEHIND_S = 20.0
_ERRANDS_S = 5.0
_PIECE = 256 << 10
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

Query = Mapping[str, str | int | float | bool | Sequence[str] | None]
Body = bytes | Callable[[], AsyncIterable[bytes]]
"""What is sent; what is too large for memory is made anew for every attempt."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str
    query: Query = field(default_factory=dict)
    json: Any = None
    body: Body | None = None
    key: str = ""
    """Makes a creation happen once, however often it is asked for."""
    repeatable: bool = False
    """Doing it twice is the same as once, though its method does not say so."""
    once: bool = False
    """What is sent can be had only once."""
    headers: Mapping[str, str] = field(default_factory=dict)
    answers_within_s: float | None = _ANSWER_S
    """None for streams, which may be silent but send a sign of life."""

    @property
    def is_safe(self) -> bool:
        if self.once:
            return False
        return self.repeatable or bool(self.key) or self.method in ("GET", "PUT", "DELETE")

    def target(self, base: str) -> str:
        words: list[tuple[str, str]] = []
        for name, value in self.query.items():
            if value is None or value == "":
                continue
            many = value if isinstance(value, list | tuple) else [value]
            words += [(name, _word(each)) for each in many]
        # A path is bytes; those that are no text have come here as lone surrogates.
        query = urlencode(words, quote_via=quote, safe="", errors="surrogateescape")
        query = f"?{query}" if words else ""
        return f"{base}{self.path}{query}"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def segment(name: str) -> str:
    """A name as one part of a path, whatever is in it."""
    if name in ("", ".", ".."):
        raise InvalidRequest(f"{name!r} is no name", remediation="give a name or an id")
    return quote(name, safe="")


class Pauses:
    """How long to wait before the next attempt, and when it is enough."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Something worked: the patience is whole again."""
        self._pause_s = _FIRST_PAUSE_S
        self._began = asyncio.get_running_loop().time()

    async def wait(self, error: PaddockError, patience_s: float) -> None:
        """Until it is time to try again; raises the error when there is no patience left."""
        pause = self._pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients, no secret
        pause = max(pause, error.retry_after_s or 0.0)
        if asyncio.get_running_loop().time() + pause >= self._began + patience_s:
            raise error
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        await asyncio.sleep(pause)


class Server:
    """A Paddock server. Address and token are found by themselves where they are not given."""

    def __init__(self, url: str = "", token: str = "", *, patience_s: float = PATIENCE_S) -> None:
        self._place = find_place(url, token)
        self._patience_s = patience_s
        self._pool: Pool | None = None
        self._known = False
        self._errands: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return self._place.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections; the next call opens others."""
        await self.errands_done()
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if pool.loop is asyncio.get_running_loop():
            await pool.close()
        else:
            pool.close_soon()

    def later(self, errand: Coroutine[Any, Any, None]) -> None:
        """Done while the caller goes on; its failure is nobody's concern."""

        async def quietly() -> None:
            with suppress(PaddockError):
                await errand

        task = asyncio.create_task(quietly(), name=ERRAND)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def errands_done(self) -> None:
        """Wait for them, but not for ever."""
        here = asyncio.get_running_loop()
        if errands := [task for task in self._errands if task.get_loop() is here]:
            await asyncio.wait(errands, timeout=_ERRANDS_S)

    def patience_s(self, error: PaddockError) -> float:
        """A server that was never there is reported at once; one that was may come back."""
        if not self._known:
            return 0.0
        if isinstance(error, LimitExceeded):
            return min(self._patience_s, _RATE_S)
        # It answered that something behind it does not: that is seldom a matter of seconds.
        return min(self._patience_s, _BEHIND_S) if error.retry_after_s else self._patience_s

    async def call(self, method: str, path: str, **more: Any) -> Any:
        """The answer's JSON, or None for an empty one. Raises what the server says is wrong."""
        call = Call(method, path, **more)
        async with self.open(call) as response:
            content = await self._content(response, call)
        return text.loads(content) if content else None

    async def pages(self, path: str, query: Query, limit: int = 200) -> AsyncIterator[Any]:
        """Every item of a list, page by page."""
        cursor = ""
        while True:
            asked = {**query, "limit": limit, "cursor": cursor}
            page = await self.call("GET", path, query=asked)
            for item in page["items"]:
                yield item
            cursor = page.get("next_cursor") or ""
            if not cursor:
                return

    @asynccontextmanager
    async def open(self, call: Call) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer whose body is still to be read. Tried again while that does no harm."""
        pauses = Pauses()
        while True:
            try:
                response = await self._ask(call)
                break
            except PaddockError as error:
                if not _may_repeat(call, error):
                    raise
                await pauses.wait(error, self.patience_s(error))
        async with response:
            yield response

    async def _ask(self, call: Call) -> aiohttp.ClientResponse:
        try:
            response = await self._send(call)
        except _NOT_SENT as error:
            failure = failures.unreachable(self.url, getattr(error, "os_error", error))
            vars(failure)["sent"] = False
            raise failure from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            what = f"{call.method} {call.path}"
            raise failures.interrupted(self.url, what, error) from error
        self._known = True
        if response.status < 400:
            return response
        async with response:
            content = await self._content(response, call)
        raise self._explained(_failure(response, content))

    async def _send(self, call: Call) -> aiohttp.ClientResponse:
        headers = {"user-agent": f"paddock/{__version__}", **call.headers}
        if self._place.token:
            headers["authorization"] = f"Bearer {self._place.token}"
        if call.key:
            headers["idempotency-key"] = call.key
        body: Any = call.body() if callable(call.body) else call.body
        if call.json is not None:
            headers["content-type"] = "application/json"
            body = text.dumps(call.json).encode()
        if isinstance(body, bytes) and len(body) > _PIECE:
            body = io.BytesIO(body)  # in one piece it would hold up everything else on this loop
        quiet_s = call.answers_within_s
        timeout = aiohttp.ClientTimeout(None, sock_connect=_CONNECT_S, sock_read=quiet_s)
        session = await self._connected()
        return await session.request(
            call.method, call.target(self.url), data=body, headers=headers, timeout=timeout
        )

    async def _content(self, response: aiohttp.ClientResponse, call: Call) -> bytes:
        try:
            return await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            what = f"{call.method} {call.path}"
            raise failures.interrupted(self.url, what, error) from error

    async def _connected(self) -> aiohttp.ClientSession:
        pool = self._pool
        if pool is None or pool.loop is not asyncio.get_running_loop():
            if pool is not None:
                pool.close_soon()
            self._pool = pool = await Pool.opened(self, self._place.owner)
        return pool.session

    def _explained(self, error: PaddockError) -> PaddockError:
        if isinstance(error, Unauthenticated) and self._place.hint:
            error.remediation = self._place.hint
        return error


def _may_repeat(call: Call, error: PaddockError) -> bool:
    if isinstance(error, QuotaExceeded):
        return False  # that is seldom a matter of seconds
    if failures.was_unreachable(error) or isinstance(error, LimitExceeded):
        return not call.once
    return isinstance(error, Unavailable) and call.is_safe


def _failure(response: aiohttp.ClientResponse, content: bytes) -> PaddockError:
    after = response.headers.get("retry-after", "")
    return failures.from_answer(
        response.status,
        content,
        request_id=response.headers.get("x-request-id", ""),
        retry_after_s=float(after) if after.isascii() and after.isdigit() else None,
    )


def without_nothing(**values: Any) -> dict[str, Any]:
    """A body of what was said; what was not is left to the server."""
    return {name: value for name, value in values.items() if value is not None}
