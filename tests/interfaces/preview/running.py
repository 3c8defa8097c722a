"""A front on an event loop of its own, and what stands on both sides of it."""

import asyncio
import concurrent.futures
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import h11
import uvloop

from paddock.interfaces.preview import (
    Front,
    FrontConfig,
    Pages,
    RequestHead,
    Resolve,
    Upstream,
)

HOST = "3000-web.preview.localhost"
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class RunningFront:
    """A Front in a thread, so that it runs on either kind of loop beside the test's own."""

    def __init__(self, kind: str, resolve: Resolve, config: FrontConfig, pages: Pages) -> None:
        self._make_loop = LOOPS[kind]
        self._front = Front(resolve, config, pages)
        self._ready: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._stop: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="front")
        self.errors: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = self._ready.result(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(20)
        assert not self._thread.is_alive()
        assert not self.errors, self.errors

    @property
    def counts(self) -> Any:
        return self._front.counts

    @property
    def open_connections(self) -> int:
        return self._front.open_connections

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Begin the orderly end."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)

    def call(self, work: Callable[[Front], Any]) -> Any:
        """Run something on the front's own loop."""

        async def run() -> Any:
            return work(self._front)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self._stop = asyncio.Event()
        try:
            async with self._front as front:
                _, port = await front.listen("127.0.0.1", 0)
                self._ready.set_result(port)
                await self._stop.wait()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise


def dial_tcp(port: int) -> Callable[[], Awaitable[socket.socket]]:
    async def dial() -> socket.socket:
        opened = socket.socket()
        opened.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", port))
        except BaseException:
            opened.close()
            raise
        return opened

    return dial


def to_port(port: int, **options: Any) -> Callable[[RequestHead], Coroutine[Any, Any, Upstream]]:
    """A resolve that sends everything to one port of this machine."""
    upstream = Upstream(key=port, dial=dial_tcp(port), **options)

    async def resolve(_: RequestHead) -> Upstream:
        return upstream

    return resolve


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Scripted:
    """A TCP server whose answers are written byte by byte."""

    port: int
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)


@contextlib.asynccontextmanager
async def scripted(handler: Handler) -> AsyncIterator[Scripted]:
    script = Scripted(0)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await handler(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=2**20)
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield script
    finally:
        server.close()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def answering(*answers: bytes, close: bool = False) -> AsyncIterator[Scripted]:
    """A server that gives these answers in turn, the last one for ever, and notes the heads."""
    script: Scripted

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            script.requests.append(await reader.readuntil(b"\r\n\r\n"))
            number = min(len(script.requests), len(answers)) - 1
            writer.write(answers[number])
            await writer.drain()
            if close:
                return

    async with scripted(handle) as script:
        yield script


@dataclass
class Answer:
    """What a client got."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    reason: str = ""
    version: str = ""
    interim: list[tuple[int, list[tuple[str, str]]]] = field(default_factory=list)
    trailers: list[tuple[str, str]] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        return ", ".join(found) if found else None


class RawClient:
    """A connection on which anything can be sent. Answers are read with h11, a strict parser."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._left = b""

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def answer(self, method: str = "GET", timeout: float = 10) -> Answer:
        async with asyncio.timeout(timeout):
            return await self._answer(method)

    async def rest(self, timeout: float = 10) -> bytes:
        """Everything until the server closes."""
        async with asyncio.timeout(timeout):
            try:
                return self._left + await self.reader.read()
            except ConnectionResetError:
                return self._left

    async def _answer(self, method: str) -> Answer:
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=2**20)
        parser.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        parser.send(h11.EndOfMessage())
        if self._left:
            parser.receive_data(self._left)
        interim, head, body = [], None, b""
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                parser.receive_data(await self.reader.read(65536))
            elif isinstance(event, h11.InformationalResponse):
                interim.append((event.status_code, _text(event.headers)))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                break
        assert isinstance(event, h11.EndOfMessage), event
        assert head is not None
        self._left = parser.trailing_data[0]
        return Answer(
            head.status_code,
            _text(head.headers.raw_items()),
            body,
            head.reason.decode(),
            head.http_version.decode(),
            interim,
            _text(event.headers),
        )


def _text(headers: Any) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode("latin-1")) for name, value in headers]


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def fetch(port: int, request: bytes, method: str = "GET") -> Answer:
    """One request on a connection of its own."""
    async with connected(port) as client:
        await client.send(request)
        return await client.answer(method)


def get(target: str = "/", *lines: str, host: str = HOST) -> bytes:
    head = [f"GET {target} HTTP/1.1", f"Host: {host}", *lines, "", ""]
    return "\r\n".join(head).encode("latin-1")


def post(body: bytes, *lines: str) -> bytes:
    head = ["POST / HTTP/1.1", f"Host: {HOST}", f"Content-Length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode("latin-1") + body


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def eventually(check: Callable[[], bool], seconds: float = 5) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.01)


@contextlib.contextmanager
def refused_port() -> Iterator[int]:
    """A port at which nobody listens, for as long as this is open."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
